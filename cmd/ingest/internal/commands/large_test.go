package commands

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	large     = 15
	largeSize = 4_000_000
	// mostRead bounds the program's allocations while it disposes of them.
	mostRead = 24_000_000
)

// addLarge makes the server itself create commands with large texts.
func addLarge(t *testing.T, c redis.UniversalClient, stream string) {
	t.Helper()
	for i := range large {
		const add = `return redis.call('XADD', KEYS[1], '*', 'id', ARGV[1], 'imei', ARGV[2], 'text', string.rep('x', tonumber(ARGV[3])))`
		require.NoError(t, c.Eval(t.Context(), add, []string{stream}, fmt.Sprint("large-", i), imei, largeSize).Err())
	}
}

// allocated returns the allocations during f. Nothing may run concurrently.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Not parallel: other tests' allocations would count.
func TestLargeCommandsAreRefusedWithoutReadingThem(t *testing.T) {
	for name, stream := range map[string]func(l registry.Layout) string{
		"of an instance": func(l registry.Layout) string { return Outbound(l, "one") }, "of the queue": Queue,
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, redistest.Start(t))
			refusesLarge(t, b, stream(b.layout))
		})
	}
}

func refusesLarge(t *testing.T, b *bench, stream string) {
	in := b.gate("one")
	in.connects(imei).obeys()
	addLarge(t, b.rdb, stream)
	b.addsTo(stream, "small", imei, "x")
	var target connect.Redis
	require.NoError(t, target.Parse("redis://"+b.server.Addr()))
	target.MostReply = 16 << 20
	clients, err := connect.Open(t.Context(), &target, time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { _ = clients.Close() })

	got := map[Status]int{}
	require.Less(t, allocated(func() {
		in.reads(func(c *Config) {
			c.Client, c.Blocking = clients.Data, clients.Blocking
		})
		for from, n := "0", 0; n < large+1; {
			page, err := b.rdb.XRead(t.Context(), &redis.XReadArgs{Streams: []string{Responses(b.layout), from}, Block: patience}).Result()
			require.NoError(t, err)
			for _, m := range page[0].Messages {
				got[outcome(m).Status]++
				from = m.ID
				n++
			}
		}
	}), uint64(mostRead))
	require.Equal(t, map[Status]int{Invalid: large, Answered: 1}, got)
}

// Not parallel, as above.
func TestLargeCommandsOfTheDeadAreAnsweredWithoutReadingThem(t *testing.T) {
	s := redistest.Start(t)
	w := redistest.World{Client: s.Client(), Options: s.Options(), Prefix: redistest.Prefix(t), Real: true}
	f := sweeping(t, w)
	addLarge(t, f.Client, Outbound(f.layout, "dead"))
	require.Less(t, allocated(func() {
		report := f.sweeps()
		require.Equal(t, janitor.Done, report.Outcome, report.Error)
		require.Equal(t, large, report.Evicted)
	}), uint64(mostRead))
	require.Len(t, f.outcomes(), large)
}
