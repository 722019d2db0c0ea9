package console

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A reading of 1,000 instances, a thirtieth of which has beaten since the last one, and what one
// viewer of it costs. A reading is made each second at most.
func BenchmarkOneSecondOfAThousandInstances(b *testing.B) {
	ctx := b.Context()
	client, keys := redistest.Start(b).Client(), guard.Layout{}
	const instances, devices = 1000, 100
	beat := func(i int) {
		id, now := fmt.Sprint("ingest-", i), time.Now()
		value := fmt.Sprintf("%d/%s", now.UnixMilli(), boot)
		require.NoError(b, client.Set(ctx, keys.Heartbeat(id), value, 90*time.Second).Err())
	}
	for i := range instances {
		id := fmt.Sprint("ingest-", i)
		beat(i)
		require.NoError(b, client.SAdd(ctx, keys.Roster(), id).Err())
		about := encoded(inspect.About{Boot: boot, Program: "ingest", Version: "v1.2.3",
			Address: "10.0.0.1:8080", Interval: "30s", TTL: "1m30s"})
		require.NoError(b, client.Set(ctx, keys.About(id), about, time.Hour).Err())
		var members []any
		var entries []any
		for d := range devices {
			imei := fmt.Sprintf("%015d", i*devices+d)
			members, entries = append(members, imei), append(entries, imei, id)
		}
		require.NoError(b, client.SAdd(ctx, keys.Devices(id), members...).Err())
		require.NoError(b, client.HSet(ctx, keys.Registry(), entries...).Err())
	}
	f := newFleet(inspect.New(client, keys), client, func() self { return self{} })
	last := f.read(nil)
	require.NoError(b, last.err)
	b.Run("reading", func(b *testing.B) {
		size := 0
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			for n := range instances / 30 {
				beat((i*33 + n) % instances)
			}
			b.StartTimer()
			last = f.read(last)
			size = len(last.changes)
		}
		b.ReportMetric(float64(size), "bytes/message")
	})
	before := *last
	before.n--
	b.Run("viewer", func(b *testing.B) {
		for b.Loop() {
			_, _ = io.Discard.Write(tellFleet(&before, last))
		}
	})
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			_, _ = io.Discard.Write(tellFleet(nil, last))
		}
	})
	b.Run("commands", func(b *testing.B) {
		require.NoError(b, client.ConfigResetStat(ctx).Err())
		n := 0
		for b.Loop() {
			last = f.read(last)
			n++
		}
		stats, err := client.Info(ctx, "commandstats").Result()
		require.NoError(b, err)
		calls, usec := 0, 0
		for line := range strings.Lines(stats) {
			_, text, _ := strings.Cut(line, ":")
			var c, u int
			_, _ = fmt.Sscanf(text, "calls=%d,usec=%d", &c, &u)
			calls, usec = calls+c, usec+u
		}
		b.ReportMetric(float64(calls)/float64(n), "commands/op")
		b.ReportMetric(float64(usec)/float64(n), "redis-µs/op")
	})
}
