package gateway

import (
	"encoding/json"
	"fmt"
	"os"
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
				require.Equal(t, w.LocalAddr().String(), got[i]["peer"])
				require.Equal(t, fmt.Sprint(i), got[i]["record"])
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
		{vector: "neg_cmd_size_underflow", outcome: "command", codec: "14", dead: true},
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
			await(t, func() bool { return b.Messages().Waiting == 0 })
			dead := b.entries(t, b.stream+DeadSuffix)
			if !tt.dead {
				require.Empty(t, dead)
				return
			}
			require.Len(t, dead, 1)
			require.Equal(t, imei, dead[0]["imei"])
			require.Equal(t, raw, dead[0]["raw"])
			require.Contains(t, dead[0]["reason"], "teltonika: ")
			require.NotEmpty(t, dead[0]["ts"])
		})
	}
}
