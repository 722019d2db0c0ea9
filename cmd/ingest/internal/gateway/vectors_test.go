package gateway

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// vector is an entry of the codec's vectors. The gateway's tests use those for a TCP socket; the
// codec's tests show that they are decoded as documented.
type vector struct {
	Name, Kind, Hex string
	Expect          struct {
		Ack       string `json:"ack_hex"`
		Codec     int    `json:"codec_id"`
		Error     string
		Transport string
	}
}

func vectors(t *testing.T) []vector {
	t.Helper()
	raw, err := os.ReadFile("../../../../internal/teltonika/testdata/vectors.json")
	require.NoError(t, err)
	var all []vector
	require.NoError(t, json.Unmarshal(raw, &all))
	return all
}

func find(t *testing.T, name string) vector {
	t.Helper()
	for _, v := range vectors(t) {
		if v.Name == name {
			return v
		}
	}
	t.Fatalf("no vector %q", name)
	return vector{}
}

func TestDocumentedFramesAreAcknowledgedAndStandDecodedInTheStream(t *testing.T) {
	t.Parallel()
	driving := teltonika.AppendFrame(nil, teltonika.Codec8E, sim.NewTrack(7).Next(50)...)
	frames := map[string][]byte{"a driving device": driving}
	for _, v := range vectors(t) {
		if v.Kind == "documented" && v.Expect.Transport == "tcp" && v.Expect.Error == "" && v.Expect.Ack != "" {
			frames[v.Name] = unhex(t, v.Hex)
		}
	}
	require.Greater(t, len(frames), 5)
	for name, raw := range frames {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var batch teltonika.Batch
			require.NoError(t, batch.Decode(raw[8:len(raw)-4]))
			b := setup(t, redistest.Shared(t))
			w := b.login(t, imei)
			w.send(raw)
			w.expect(fmt.Sprintf("%08x", len(batch.Records)))
			got := b.entries(t, b.stream)
			require.Len(t, got, len(batch.Records))
			fits(t, "record", got)
			for i, r := range batch.Records {
				for _, field := range []string{"widths", "frame", "record", "peer", "generation"} { // see cases_test.go
					delete(got[i], field)
				}
				require.Equal(t, map[string]any{
					"imei": imei, "ts": fmt.Sprint(r.Timestamp),
					"lat": string(teltonika.AppendDegrees(nil, r.Latitude)), "lon": string(teltonika.AppendDegrees(nil, r.Longitude)),
					"alt": fmt.Sprint(r.Altitude), "angle": fmt.Sprint(r.Angle), "sat": fmt.Sprint(r.Satellites),
					"speed": fmt.Sprint(r.Speed), "event": fmt.Sprint(r.Event), "priority": fmt.Sprint(r.Priority),
					"codec": batch.Codec.String(), "io": string(r.IO.AppendJSON(nil)),
				}, got[i])
			}
			awaitCount(t, 1, b.frames(batch.Codec.String(), "acknowledged"))
			awaitCount(t, len(got), b.metrics.records.WithLabelValues(batch.Codec.String()))
		})
	}
}

func TestCommandFramesAreTakenAndNeverAcknowledged(t *testing.T) {
	t.Parallel()
	b := setup(t, redistest.Shared(t))
	w := b.login(t, imei)
	sent := map[string]int{}
	for _, v := range vectors(t) {
		if v.Expect.Transport == "tcp" && v.Expect.Codec >= 12 && v.Expect.Codec <= 15 && v.Name != "codec14_nack" {
			w.send(unhex(t, v.Hex)) // neg_cmd_size_underflow is among them
			sent[strconv.Itoa(v.Expect.Codec)]++
		}
	}
	require.Len(t, sent, 4)
	w.send(unhex(t, find(t, "codec8_tcp_3").Hex))
	w.expect("00000002") // the first bytes to come
	for codec, n := range sent {
		awaitCount(t, n, b.frames(codec, "command"))
	}
	await(t, func() bool { return b.messages.read().Waiting == 0 })
	dead := b.entries(t, b.stream+DeadSuffix)
	require.Equal(t, []string{"14"}, column(dead, "codec"))
	require.Equal(t, []string{find(t, "neg_cmd_size_underflow").Hex}, column(dead, "raw"))
	fits(t, "dead", dead)
}

func TestBadFramesGetWhatTheyMust(t *testing.T) {
	t.Parallel()
	tests := []struct {
		vector  string
		answer  string // before the end, or before the next frame's
		ends    bool
		outcome string // of the frame
		codec   string
		dead    bool
	}{
		{vector: "neg_crc", ends: true, outcome: "rejected"},
		{vector: "neg_crc_high", ends: true, outcome: "rejected"},
		{vector: "codec14_nack", ends: true, outcome: "rejected"}, // as printed, its CRC is wrong
		{vector: "neg_len_ffffffff", ends: true, outcome: "rejected"},
		{vector: "neg_len_7fffffff", ends: true, outcome: "rejected"},
		{vector: "neg_len_0", ends: true, outcome: "rejected"},
		{vector: "neg_len_2", ends: true, outcome: "rejected"},
		{vector: "neg_preamble", ends: true, outcome: "rejected"},
		{vector: "neg_http", ends: true, outcome: "rejected"},
		{vector: "neg_count2", ends: true, outcome: "dead", codec: "8", dead: true},
		{vector: "neg_unknown_codec", ends: true, outcome: "dead", codec: "unknown", dead: true},
		{vector: "neg_amplify", answer: "00000002", outcome: "dead", codec: "8E", dead: true},
		{vector: "neg_nx_len", answer: "00000001", outcome: "dead", codec: "8E", dead: true},
		{vector: "neg_zero_records", answer: "00000000", outcome: "acknowledged", codec: "8"},
		{vector: "keepalive_ping"},
	}
	for _, tt := range tests {
		t.Run(tt.vector, func(t *testing.T) {
			t.Parallel()
			b := setup(t, redistest.Shared(t))
			w := b.login(t, imei)
			raw := find(t, tt.vector).Hex
			w.send(unhex(t, raw))
			if tt.answer != "" {
				w.expect(tt.answer)
			}
			if tt.ends {
				w.expectEnd()
			} else { // and what comes after it gets out
				next := teltonika.AppendFrame(nil, teltonika.Codec16, teltonika.Record{}, teltonika.Record{})
				w.send(next)
				w.expect("00000002")
			}
			if tt.outcome != "" {
				awaitCount(t, 1, b.frames(tt.codec, tt.outcome))
			}
			dead := b.entries(t, b.stream+DeadSuffix)
			if !tt.dead {
				require.Empty(t, dead)
				return
			}
			require.Len(t, dead, 1)
			require.Equal(t, imei, dead[0]["imei"])
			require.Equal(t, raw, dead[0]["raw"])
			require.Equal(t, hex.EncodeToString(unhex(t, raw)[8:9]), map[string]string{"8": "08", "8E": "8e", "0x99": "99"}[dead[0]["codec"].(string)])
			require.Contains(t, dead[0]["reason"], "teltonika: ")
			require.NotEmpty(t, dead[0]["ts"])
		})
	}
}

func TestAPeerThatIsNoDeviceIsRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"neg_imei_nondigit", "neg_imei_14", "neg_http", "neg_tls_hello", "neg_imei_len_0", "neg_imei_len_ffff"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, redistest.Shared(t))
			w := b.dial(t)
			w.send(unhex(t, find(t, name).Hex))
			w.expect("00")
			w.expectEnd()
			require.Empty(t, b.registrar.all())
		})
	}
}
