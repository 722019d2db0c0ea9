package gateway

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestStreamsLieEvenlyOnTheSlots(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{Stream}, streams(Stream, 1))
	require.Equal(t, []string{"telemetry:{teltonika:2:00:0}", "telemetry:{teltonika:2:01:0}"}, streams(Stream, 2))
	for _, n := range []int{2, 16, 1024} {
		for k, name := range streams(Stream, n) {
			require.Equal(t, k, slot.Of(name)*n/slot.Count, name)
			require.Equal(t, slot.Of(name), slot.Of(name+DeadSuffix))
		}
	}
}

func TestThePageHasTheNamesOfTheStreams(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../../docs/devices.md")
	require.NoError(t, err)
	var names []string
	for _, name := range streams(Stream, 16) {
		names = append(names, strings.TrimSuffix(strings.TrimPrefix(name, "telemetry:{teltonika:16:"), "}"))
	}
	require.Contains(t, string(page), "for s in "+strings.Join(names, " ")+"; do")
}

func TestCapsAreOfAllStreamsTogether(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = client.Close() })
	for _, c := range []struct {
		streams                     int
		maxLen, records, deadLetter int64
	}{
		{1, 1_000_000, 1_000_000, 10_000},
		{16, 1_000_000, 62_500, 625},
		{16, 1000, 63, 63},
		{1024, 11, 1, 1},
	} {
		for _, s := range newStore(client, streams(Stream, c.streams), c.maxLen).streams {
			require.Equal(t, c.records, s.maxLen)
			require.Equal(t, c.deadLetter, s.dead.most)
		}
	}
}

// The commands of a pipeline look answered if its connection was refused.
func TestADeadLetterOverAConnectionThatIsRefusedIsNotKept(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	require.NoError(t, srv.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	o := srv.Options()
	o.Password = "wrong"
	client := redis.NewClient(o)
	defer client.Close()
	s := newStore(client, []string{Stream}, 100)
	s.start()
	defer s.close()
	broken := teltonika.Frame{Body: []byte{0}, Raw: []byte{0}}
	_, err := s.keep(t.Context(), time.Now().Add(time.Minute), origin{imei: "1"}, broken)
	require.ErrorContains(t, err, "WRONGPASS")
}

// A device's records and dead letters are where readers in any language look for them, and a
// master that hangs delays only the devices whose streams it holds.
func TestEachDeviceHasItsStream(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	o := c.Options()
	o.PoolSize, o.PipelinePoolSize, o.MaxRetries, o.MaxRedirects = 2, 1, -1, -1
	client := redis.NewClusterClient(o)
	var hanging []string // streams of a master that hangs while on is set, until resume is closed
	var on atomic.Bool
	var now atomic.Int64
	resume := make(chan struct{})
	client.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if on.Load() && slices.ContainsFunc(cmds, func(c redis.Cmder) bool {
			return c.Name() == "xadd" && slices.Contains(hanging, fmt.Sprint(c.Args()[1]))
		}) {
			now.Add(1)
			<-resume
		}
		return send()
	}))
	t.Cleanup(func() { _ = client.Close() })
	b := setup(t, redistest.Shared(t), func(cfg *Config) {
		cfg.Client, cfg.Stream, cfg.Streams = client, Stream, 16
	})
	names, rdb := streams(Stream, 16), c.Client()
	of := func(imei string) string { return names[guard.PartitionOf(imei, 16)] }
	require.Equal(t, "telemetry:{teltonika:16:03:2}", of("352093081452251"))

	sent := map[string]int64{}
	var there, elsewhere []*wire
	for i := 0; len(there) < 2*underWay(client) || len(elsewhere) < 8; i++ {
		imei := fmt.Sprintf("35%013d", i)
		w := b.login(t, imei)
		w.send(frame(2))
		w.expect("00000002")
		sent[of(imei)] += 2
		if c.Owner(of(imei)) == c.Nodes[2] {
			there, hanging = append(there, w), append(hanging, of(imei))
		} else {
			elsewhere = append(elsewhere, w)
		}
	}
	for _, name := range names {
		require.Equal(t, sent[name], rdb.XLen(t.Context(), name).Val(), name)
	}
	w := b.login(t, otherIMEI)
	w.send(junk)
	w.expect("00000001")
	dead := rdb.XRange(t.Context(), "telemetry:{teltonika:16:03:2}:dead", "-", "+").Val()
	require.Len(t, dead, 1)
	require.Equal(t, "352093081452251", dead[0].Values["imei"])

	on.Store(true)
	defer close(resume)
	for _, w := range there {
		w.send(frame(1))
	}
	different := len(slices.Compact(slices.Sorted(slices.Values(hanging))))
	await(t, func() bool { return now.Load() == int64(different) }) // one per stream
	for _, w := range elsewhere {
		w.reports()
	}
}
