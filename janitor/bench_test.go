package janitor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// BenchmarkOneOwnerFalls sweeps one owner of a million entries at the whole share, and sets that against what no janitor can
// beat: a loop of SSCAN and HDEL without guard, index or audit. wall-ratio and cpu-ratio are the quotients; cpu is Redis'.
func BenchmarkOneOwnerFalls(b *testing.B) {
	const entries = 1_000_000
	for b.Loop() {
		bareWall, bareCPU := bareLoop(b, entries)
		wall, cpu := swept(b, entries)
		b.ReportMetric(wall.Seconds(), "s-wall")
		b.ReportMetric(cpu, "s-cpu")
		b.ReportMetric(wall.Seconds()/bareWall.Seconds(), "wall-ratio")
		b.ReportMetric(cpu/bareCPU, "cpu-ratio")
	}
}

func bareLoop(b *testing.B, entries int) (wall time.Duration, cpu float64) {
	s := redistest.Start(b)
	c := s.Client()
	layout := registry.Layout{}
	filled(b, c, layout, entries)
	begun, before := time.Now(), cpuOf(b, c)
	for cursor := uint64(0); ; {
		imeis, next, err := c.SScan(b.Context(), layout.Devices("dead"), cursor, "", defaultScanCount).Result()
		require.NoError(b, err)
		for len(imeis) > 0 {
			n := min(len(imeis), defaultDeleteBatch)
			require.NoError(b, c.HDel(b.Context(), layout.Registry(), imeis[:n]...).Err())
			imeis = imeis[n:]
		}
		if cursor = next; cursor == 0 {
			return time.Since(begun), cpuOf(b, c) - before
		}
	}
}

func swept(b *testing.B, entries int) (wall time.Duration, cpu float64) {
	s := redistest.Start(b)
	c := s.Client()
	layout := registry.Layout{}
	filled(b, c, layout, entries)
	ctl := redis.NewClient(lease.Options(s.Options()))
	defer ctl.Close()
	reg, err := registry.New(registry.Config{Client: c, Control: ctl, Instance: "r1", Layout: layout})
	require.NoError(b, err)
	guard := registry.NewGuard(c, c, layout, reg.Gap(), reg.Warm(), "r1")
	w, err := guard.Tick(b.Context())
	require.NoError(b, err)
	require.NoError(b, c.HSet(b.Context(), layout.Witness(), "since", w.Now.Add(-time.Hour).UnixMilli()).Err())
	require.NoError(b, c.Set(b.Context(), layout.Heartbeat("r1"), "0/0", beatTTL).Err())
	require.NoError(b, c.SAdd(b.Context(), layout.Roster(), "r1", "dead").Err())
	j, err := New(Config{Client: c, Control: ctl, Registry: reg, RedisShare: 1})
	require.NoError(b, err)
	r := &replica{Janitor: j}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	begun, before := time.Now(), cpuOf(b, c)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	for c.Exists(b.Context(), layout.Devices("dead")).Val() == 1 {
		time.Sleep(5 * time.Millisecond)
	}
	wall, cpu = time.Since(begun), cpuOf(b, c)-before
	cancel()
	require.NoError(b, <-ended)
	require.Zero(b, c.HLen(b.Context(), layout.Registry()).Val())
	return wall, cpu
}

// filled gives the instance "dead" its entries.
func filled(b *testing.B, c *redis.Client, layout registry.Layout, entries int) {
	for at := 0; at < entries; at += 1000 {
		pairs, members := make([]any, 0, 2000), make([]any, 0, 1000)
		for i := at; i < at+1000; i++ {
			imei := fmt.Sprintf("%015d", 350_000_000_000_000+i*7919)
			pairs, members = append(pairs, imei, "dead"), append(members, imei)
		}
		require.NoError(b, c.HSet(b.Context(), layout.Registry(), pairs...).Err())
		require.NoError(b, c.SAdd(b.Context(), layout.Devices("dead"), members...).Err())
	}
}

// cpuOf is the CPU that the server has used so far, in seconds.
func cpuOf(b *testing.B, c *redis.Client) (sum float64) {
	info, err := c.Info(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for line := range strings.Lines(info) {
		for _, name := range []string{"used_cpu_sys:", "used_cpu_user:"} {
			if v, ok := strings.CutPrefix(line, name); ok {
				s, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
				require.NoError(b, err)
				sum += s
			}
		}
	}
	return sum
}
