package bench

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// spent sums up the time and this process' CPU time that something takes.
type spent struct{ wall, cpu time.Duration }

func (c *spent) of(do func()) {
	began, before := time.Now(), processCPU()
	do()
	c.cpu += processCPU() - before
	c.wall += time.Since(began)
}

func processCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for no argument of ours
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkLookupMany looks up 1,000 devices of ten owners beside one HMGET of them: the metrics
// are the ratios of time, and of the client's CPU time.
func BenchmarkLookupMany(b *testing.B) {
	ctx, opt := b.Context(), redistest.Shared(b).Options()
	srv, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	b.Cleanup(func() {
		_ = srv.Close()
		_ = ctl.Close()
	})
	reg, err := registry.New(registry.Config{
		Client: srv, Control: ctl, Instance: "reader", Layout: registry.Layout{Prefix: redistest.Prefix(b)},
	})
	require.NoError(b, err)
	keys := reg.Layout()
	for i := range 10 {
		require.NoError(b, srv.Set(ctx, keys.Heartbeat(owner("live", i)), "0/0", time.Hour).Err())
	}
	ids := make([]string, 1000)
	entries := make(map[string]any, len(ids))
	for i := range ids {
		ids[i] = imei(i)
		entries[ids[i]] = owner("live", i%10)
	}
	require.NoError(b, srv.HSet(ctx, keys.Registry(), entries).Err())
	var ours, floor spent
	for b.Loop() {
		floor.of(func() { require.NoError(b, srv.HMGet(ctx, keys.Registry(), ids...).Err()) })
		ours.of(func() {
			owners, err := reg.LookupMany(ctx, ids)
			require.NoError(b, err)
			require.Len(b, owners, len(ids))
		})
	}
	b.ReportMetric(float64(ours.wall)/float64(floor.wall), "x-HMGET")
	b.ReportMetric(float64(ours.cpu)/float64(floor.cpu), "x-CPU")
}

// BenchmarkHoldings reads what one owner of a million devices holds, on a server of its own. The
// metrics are the server's: microseconds of its mean call, its CPU time for a call with all around
// it, and how many calls took over a millisecond, which on a busy machine others cause.
func BenchmarkHoldings(b *testing.B) {
	const n = 1_000_000
	server := redistest.Start(b)
	opt := server.Options()
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	b.Cleanup(func() {
		_ = rdb.Close()
		_ = ctl.Close()
	})
	r, err := registry.New(registry.Config{Client: rdb, Control: ctl, Instance: "reader"})
	require.NoError(b, err)
	ctx, keys := b.Context(), r.Layout()
	for from := 0; from < n; from += page {
		entries, members := make(map[string]any, page), make([]any, page)
		for i := range members {
			members[i] = imei(from + i)
			entries[imei(from+i)] = "holder"
		}
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, keys.Registry(), entries)
			p.SAdd(ctx, keys.Devices("holder"), members...)
			return nil
		})
		require.NoError(b, err)
	}
	require.NoError(b, rdb.ConfigSet(ctx, "slowlog-log-slower-than", "1000").Err())
	require.NoError(b, rdb.ConfigSet(ctx, "slowlog-max-len", "100000").Err())
	require.NoError(b, rdb.Do(ctx, "SLOWLOG", "RESET").Err())
	require.NoError(b, rdb.ConfigResetStat(ctx).Err())
	busy := func() (seconds float64) {
		info := rdb.InfoMap(ctx, "cpu")
		for _, kind := range []string{"used_cpu_user", "used_cpu_sys"} {
			s, err := strconv.ParseFloat(info.Item("CPU", kind), 64)
			require.NoError(b, err)
			seconds += s
		}
		return seconds
	}
	before := busy()
	for b.Loop() {
		held := 0
		for _, err := range r.Holdings(ctx, "holder") {
			require.NoError(b, err)
			held++
		}
		require.GreaterOrEqual(b, held, n)
	}
	took := busy() - before
	stats, err := rdb.Info(ctx, "commandstats").Result()
	require.NoError(b, err)
	calls := 0
	for _, command := range []string{"sscan", "hmget"} {
		_, line, found := strings.Cut(stats, "cmdstat_"+command+":")
		require.True(b, found, stats)
		var n, usec int
		_, err := fmt.Sscanf(line, "calls=%d,usec=%d", &n, &usec)
		require.NoError(b, err)
		calls += n
		b.ReportMetric(float64(usec)/float64(n), "µs/"+strings.ToUpper(command))
	}
	slow, err := rdb.Do(ctx, "SLOWLOG", "LEN").Int()
	require.NoError(b, err)
	b.ReportMetric(1e6*took/float64(calls), "µs-CPU/call")
	b.ReportMetric(100*float64(slow)/float64(calls), "%-over-1ms")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
}
