package gateway

import (
	"io"
	"testing"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// BenchmarkFrame measures a frame of ten records from a device's write to its acknowledgement, on
// a real Redis.
func BenchmarkFrame(b *testing.B) {
	s := setup(b, redistest.Shared(b), func(c *Config) { c.MaxLen = 10_000 })
	s.rate = rate{} // one device represents many
	w := s.login(b, imei)
	raw := teltonika.AppendFrame(nil, teltonika.Codec8E, sim.NewTrack(1).Next(10)...)
	ack := make([]byte, 4)
	b.ReportAllocs()
	for b.Loop() {
		w.send(raw)
		if _, err := io.ReadFull(w, ack); err != nil {
			b.Fatal(err)
		}
	}
}
