package gateway

import (
	"bufio"
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// schemas returns the schema of each kind of entry.
func schemas(t testing.TB) func(kind string) *jsonschema.Schema {
	t.Helper()
	raw, err := os.ReadFile("../../../../docs/reference/telemetry.schema.json")
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	c.AssertContent()
	require.NoError(t, c.AddResource("telemetry.json", doc))
	return func(kind string) *jsonschema.Schema {
		s, err := c.Compile("telemetry.json#/$defs/" + kind)
		require.NoError(t, err)
		return s
	}
}

// fits requires that entries match the schema, without additional fields.
func fits(t testing.TB, kind string, entries []map[string]any) {
	t.Helper()
	schema := schemas(t)(kind)
	for _, e := range entries {
		require.NoError(t, schema.Validate(any(e)), "%v", e)
		for field := range e {
			require.Contains(t, schema.Properties, field)
		}
	}
}

// play sends and expects a file's data. It returns the entries of the three streams.
func play(t *testing.T, b *bench, name string) (records, messages, dead []map[string]any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", name))
	require.NoError(t, err)
	var w *wire
	commands := 0 // frames that have no answer
	for lines := bufio.NewScanner(bytes.NewReader(raw)); lines.Scan(); {
		switch kind, text, _ := strings.Cut(lines.Text(), " "); {
		case kind == ">":
			if w == nil {
				w = b.dial(t)
			}
			p := unhex(t, text)
			if w.send(p); len(p) > 20 && teltonika.Codec(p[8]).IsCommand() {
				commands++
			}
		case kind == "<" && text == "end":
			w.expectEnd()
			w = nil
		case kind == "<":
			w.expect(text)
		}
	}
	await(t, func() bool {
		came := 0.0
		for _, codec := range []string{"12", "13", "14", "15"} {
			came += testutil.ToFloat64(b.frames(codec, "command"))
		}
		return came == float64(commands) && b.Messages().Waiting == 0
	})
	records, dead = b.entries(t, b.stream), b.entries(t, b.stream+DeadSuffix)
	messages = b.entries(t, b.stream+MessagesSuffix)
	fits(t, "record", records)
	fits(t, "dead", dead)
	fits(t, "message", messages)
	return records, messages, dead
}

// column returns a field of each entry, or "-" if missing.
func column(entries []map[string]any, field string) (all []string) {
	for _, e := range entries {
		value, ok := e[field].(string)
		if !ok {
			value = "-"
		}
		all = append(all, value)
	}
	return all
}

func TestPublicCasesAreStoredAndAnswered(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, records, messages, dead []map[string]any){
		"06-value-below-zero.hex": func(t *testing.T, records, _, _ []map[string]any) {
			require.Equal(t, []string{`{"72":4294967294}`, `{"25":65534,"72":65534}`}, column(records, "io"))
			require.Equal(t, []string{`{"4":[72]}`, `{"2":[25,72]}`}, column(records, "widths"))
			for _, e := range records {
				require.EqualValues(t, -2, signed(t, e)["72"])
			}
		},
		"24-counts-differ.hex": onceDead("8"),
		"33-codec7.hex":        onceDead("0x07"),
		"38-total-differs.hex": onceDead("8"),
		"26-255-records-of-9693-bytes.hex": func(t *testing.T, records, _, _ []map[string]any) {
			require.Len(t, records, 255)
			require.Equal(t, "254", records[254]["record"])
			require.Equal(t, records[0]["frame"], records[254]["frame"])
		},
		"28-codec16-generation-type.hex": func(t *testing.T, records, _, _ []map[string]any) {
			require.Equal(t, []string{"5", "0", "7"}, column(records, "generation"))
		},
		"29-serial-data-codec12.hex": func(t *testing.T, records, messages, _ []map[string]any) {
			require.Len(t, records, 3)
			require.Equal(t, []string{"06", "0B"}, column(messages, "type"))
			require.Equal(t, []string{"LLS: 20 AF 20 02 0000 12 34\r\n", "-"}, column(messages, "text"))
			require.Equal(t, []string{"12", "12"}, column(messages, "codec"))
			require.Equal(t, []string{"-", "-"}, column(messages, "ts"))
			require.True(t, strings.HasPrefix(messages[1]["hex"].(string), "000102030405"))
			require.Len(t, messages[1]["hex"], 128)
		},
		"30-tachograph-codec13.hex": func(t *testing.T, records, messages, _ []map[string]any) {
			require.Len(t, records, 3)
			require.Equal(t, []string{"GTSL|6|1|0|11223344556677|1\r\n"}, column(messages, "text"))
			require.Equal(t, []string{"1700000000000"}, column(messages, "ts"))
		},
		"32-camera-announces-photo.hex": func(t *testing.T, _, messages, _ []map[string]any) {
			require.Equal(t, []string{"0D"}, column(messages, "type"))
			require.Equal(t, []string{"01598493ed00007530"}, column(messages, "hex"))
		},
		"40-codec12-of-9000-bytes.hex": func(t *testing.T, _, messages, _ []map[string]any) {
			require.Equal(t, []string{strings.Repeat("x", 9000)}, column(messages, "text"))
		},
		"41-codecs-14-and-15-unasked.hex": func(t *testing.T, _, messages, _ []map[string]any) {
			require.Equal(t, []string{"14", "15"}, column(messages, "codec"))
			require.Equal(t, []string{"-", "352093081452251"}, column(messages, "named"))
			require.Equal(t, []string{"unasked", "-"}, column(messages, "text"))
			require.Equal(t, []string{"-", "1700000000000"}, column(messages, "ts"))
		},
	}
	files, err := filepath.Glob("testdata/*.hex")
	require.NoError(t, err)
	require.Len(t, files, len(tests))
	for name, check := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records, messages, dead := play(t, setup(t, redistest.Shared(t)), name)
			check(t, records, messages, dead)
		})
	}
}

// onceDead expects one dead letter and nothing else.
func onceDead(codec string) func(*testing.T, []map[string]any, []map[string]any, []map[string]any) {
	return func(t *testing.T, records, messages, dead []map[string]any) {
		t.Helper()
		require.Empty(t, records)
		require.Empty(t, messages)
		require.Equal(t, []string{codec}, column(dead, "codec"))
	}
}

// signed extends the signs of all numbers in an entry, as in docs/reference/telemetry.md.
func signed(t *testing.T, entry map[string]any) map[string]int64 {
	t.Helper()
	var io map[string]any
	var widths map[string][]json.Number
	d := json.NewDecoder(strings.NewReader(entry["io"].(string)))
	d.UseNumber()
	require.NoError(t, d.Decode(&io))
	require.NoError(t, json.Unmarshal([]byte(entry["widths"].(string)), &widths))
	all := map[string]int64{}
	for width, ids := range widths {
		for _, id := range ids {
			n, err := io[id.String()].(json.Number).Int64()
			require.NoError(t, err)
			if bits := 8 * uint(width[0]-'0'); n>>(bits-1) == 1 {
				n -= 1 << bits
			}
			all[id.String()] = n
		}
	}
	return all
}

// A repeat has the same frame, so that a reader can drop it. Other frames, and the same frame of
// another device, differ.
func TestARepeatIsKnownByItsFrame(t *testing.T) {
	t.Parallel()
	id := func(imei, body string) string { return string(appendFrameID(nil, imei, []byte(body))) }
	require.Equal(t, id(imei, "a"), id(imei, "a"))
	require.NotEqual(t, id(imei, "a"), id(imei, "b"))
	require.NotEqual(t, id(imei, "a"), id(otherIMEI, "a"))
}

func TestTheSchemaRefusesWhatNoEntryIs(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	b.login(t, imei).reports()
	entry, schema := b.entries(t, b.stream)[0], schemas(t)("record")
	for field, wrong := range map[string]any{
		"io": `{"1":-1}`, "widths": `{"3":[1]}`, "frame": "", "generation": "5", "lat": "1.5", "codec": "12",
	} {
		e := maps.Clone(entry)
		e[field] = wrong
		require.Error(t, schema.Validate(any(e)), field)
	}
}
