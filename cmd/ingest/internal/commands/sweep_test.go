package commands

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

var timing = guard.Timing{Interval: registry.DefaultHeartbeatInterval, TTL: registry.DefaultHeartbeatTTL}

// fleet is a janitor that sweeps commands on a Redis that has been observed for an hour. Of the
// instances "dead" and "empty" nothing has been heard for minutes.
type fleet struct {
	t *testing.T
	redistest.World
	layout registry.Layout
	jan    *janitor.Janitor
	config janitor.Config
}

func sweeping(t *testing.T, w redistest.World, change ...func(*janitor.Config)) *fleet {
	t.Helper()
	f := &fleet{t: t, World: w, layout: registry.Layout{Prefix: w.Prefix}}
	f.listenedFor(time.Hour)
	ctl := redis.NewClient(lease.Options(w.Options))
	data := redis.NewClient(w.Options)
	reg, err := registry.New(registry.Config{Client: data, Control: ctl, Instance: "leader", Layout: f.layout, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	f.config = janitor.Config{
		Client: data, Control: ctl, Registry: reg, Sweeps: []janitor.Sweeper{NewSweep(f.layout)}, LeaseTTL: 15 * time.Second, RedisShare: 1,
		Interval: time.Hour, Logger: slog.New(slog.DiscardHandler),
	}
	f.lives("leader")
	f.dies("dead", "empty")
	for _, c := range change {
		c(&f.config)
	}
	f.jan, err = janitor.New(f.config)
	require.NoError(t, err)
	life, stop := context.WithCancel(context.Background())
	replica := pool.New().WithContext(life)
	replica.Go(f.jan.Run)
	t.Cleanup(func() {
		stop()
		require.NoError(t, replica.Wait())
		_, _ = data.Close(), ctl.Close()
	})
	f.sweeps() // from now on passes run only on demand
	return f
}

func (f *fleet) listenedFor(d time.Duration) {
	witness, err := guard.New(f.Client, f.Client, f.layout, timing, "nobody").Tick(f.t.Context())
	require.NoError(f.t, err)
	require.NoError(f.t, f.Client.HSet(f.t.Context(), f.layout.Witness(), "since", witness.Now.Add(-d).UnixMilli()).Err())
}

// lives gives an instance a heartbeat and a fresh record.
func (f *fleet) lives(id string) {
	require.NoError(f.t, f.Client.Set(f.t.Context(), f.layout.Heartbeat(id), "0/0", timing.TTL).Err())
	f.record(id, 0)
}

// dies gives instances records so old that nothing can be in doubt.
func (f *fleet) dies(ids ...string) {
	for _, id := range ids {
		f.record(id, timing.TTL+timing.Grace()+10*time.Second)
	}
}

func (f *fleet) record(id string, ago time.Duration) {
	now, err := f.Client.Time(f.t.Context()).Result()
	require.NoError(f.t, err)
	own := doubt.Own{Interval: timing.Interval.Milliseconds(), TTL: timing.TTL.Milliseconds()}
	r := doubt.Record{Last: now.Add(-ago).UnixMilli(), TTL: own.TTL, Due: own.Due(), Born: 1, State: doubt.Holds}
	require.NoError(f.t, f.Client.HSet(f.t.Context(), f.layout.Beats(), id, r.String()).Err())
}

// sweeps requests a pass, once somebody leads, and returns this sweep's report.
func (f *fleet) sweeps(how ...janitor.Request) (report janitor.Report) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		reports, err := f.jan.Sweep(f.t.Context(), append(how, janitor.Request{})[0])
		if not := new(janitor.NotLeaderError); errors.As(err, &not) {
			return false
		}
		require.NoError(f.t, err)
		report = reports[slices.IndexFunc(reports, func(r janitor.Report) bool { return r.Sweep == "commands" })]
		return true
	}, patience, 5*time.Millisecond)
	return report
}

func (f *fleet) adds(instance string, values ...any) string {
	at, err := f.Client.XAdd(f.t.Context(), &redis.XAddArgs{Stream: Outbound(f.layout, instance), Values: values}).Result()
	require.NoError(f.t, err)
	return at
}

func (f *fleet) outcomes() []Outcome { return outcomes(f.t, f.Client, f.layout) }

// recorded returns the commands in the log, and the log's own count of them.
func (f *fleet) recorded() (names []string, count int) {
	records, err := f.Client.XRange(f.t.Context(), f.layout.Log(), "-", "+").Result()
	require.NoError(f.t, err)
	for _, r := range records {
		if list, ok := r.Values["commands"].(string); ok {
			names = append(names, list)
			n := 0
			_, err := fmt.Sscan(fmt.Sprint(r.Values["count"]), &n)
			require.NoError(f.t, err)
			count += n
		}
	}
	return names, count
}

const died, diedAfter = "the instance died before it was sent", "the instance died; the device may have executed it"

func TestCommandsOfADeadInstanceAreAnswered(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		f, ctx := sweeping(t, w, func(c *janitor.Config) { c.DeleteBatch = 5 }), t.Context()
		stream := Outbound(f.layout, "dead")
		ago := fmt.Sprintf("%d-0", time.Now().Add(-2*time.Hour).UnixMilli())
		day := []string{"id", "day", "imei", imei, "text", "x", "queue", "true"}
		require.NoError(t, f.Client.XAdd(ctx, &redis.XAddArgs{Stream: stream, ID: ago, Values: day}).Err())
		f.adds("dead", "id", "c1", "imei", imei, "text", "x")
		sent := f.adds("dead", "id", "c2", "imei", imei, "text", "x", "expires", "nan")
		f.adds("dead", "id", "c3", "text", "no device")
		marked := f.adds("dead", "id", "c4", "imei", imei, "text", "its state was evicted")
		f.adds("dead", "id", "old", "imei", imei, "text", "has an outcome")
		none := f.adds("dead", "imei", imei, "text", "no id")
		bad := f.adds("dead", "id", "two words", "imei", imei, "text", "no usable id")
		require.NoError(t, f.Client.Set(ctx, state(f.layout, "c2"), "sent life "+stream+" "+sent, time.Hour).Err())
		require.NoError(t, f.Client.Set(ctx, state(f.layout, "old"), "answered life elsewhere 1-1", time.Hour).Err())
		for _, instance := range []string{"dead", "empty"} {
			require.NoError(t, f.Client.XGroupCreateMkStream(ctx, Outbound(f.layout, instance), group, "0").Err())
		}
		require.NoError(t, f.Client.Do(ctx, "XCLAIM", stream, group, consumer, 0, marked, "FORCE", "JUSTID").Err())
		f.lives("alive")
		f.adds("alive", "id", "c9", "imei", imei, "text", "x")
		f.dies("nonsense")
		require.NoError(t, f.Client.Set(ctx, Outbound(f.layout, "nonsense"), "no stream", 0).Err())

		report := f.sweeps()
		require.Equal(t, janitor.Done, report.Outcome, report.Error)
		require.Equal(t, 8, report.Evicted)
		require.Equal(t, map[janitor.SkipReason]int{janitor.SkipUnreadable: 1}, report.Spared)
		require.Equal(t, []Outcome{
			{"day", imei, "dead", InstanceLost, died},
			{"c1", imei, "dead", InstanceLost, died},
			{"c2", imei, "dead", InstanceLost, diedAfter},
			{"c3", "", "dead", InstanceLost, died},
			{"c4", imei, "dead", InstanceLost, diedAfter},
		}, f.outcomes())
		require.Zero(t, f.Client.Exists(ctx, stream, Outbound(f.layout, "empty")).Val())
		require.Equal(t, int64(1), f.Client.XLen(ctx, Outbound(f.layout, "alive")).Val())
		names, count := f.recorded()
		require.Contains(t, names, `["day","c1","c2","c3","c4"]`)
		require.Contains(t, names, `["old","`+none+`","`+bad+`"]`)
		require.Equal(t, 8, count)
		require.Equal(t, "8", f.Client.HGet(ctx, f.layout.Witness(), "evicted_total").Val())
		// An id has one answer for as long as its command could be sent: one that repeats it gets none.
		require.Greater(t, f.Client.PTTL(ctx, state(f.layout, "day")).Val(), 22*time.Hour)
		for _, id := range []string{"c1", "c2", "c3"} {
			ttl := f.Client.PTTL(ctx, state(f.layout, id)).Val()
			require.Greater(t, ttl, 59*time.Minute)
			require.Less(t, ttl, 3*time.Hour)
		}
		f.adds("dead", "id", "c1", "imei", imei, "text", "again")
		require.Equal(t, janitor.Done, f.sweeps().Outcome)
		require.Len(t, f.outcomes(), 5)
		require.Zero(t, f.Client.Exists(ctx, stream).Val())
	})
}

func TestCommandsOfTheDeadStayWhileSweepingIsHeldAndInADryRun(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		f, ctx := sweeping(t, w), t.Context()
		stream := Outbound(f.layout, "dead")
		require.Equal(t, janitor.Done, f.sweeps().Outcome, "nothing to do is not held")
		require.NoError(t, f.Client.Set(ctx, f.layout.Paused(), "ann", 0).Err())
		f.adds("dead", "id", "c1", "imei", imei, "text", "x")
		require.Equal(t, janitor.Held, f.sweeps().Outcome)

		require.NoError(t, f.Client.Del(ctx, f.layout.Paused()).Err())
		report := f.sweeps(janitor.Request{DryRun: true})
		require.Equal(t, janitor.Done, report.Outcome)
		require.Equal(t, 1, report.Condemned)
		require.Empty(t, f.outcomes())
		require.Equal(t, int64(1), f.Client.XLen(ctx, stream).Val())

		require.NoError(t, f.Client.XTrimMaxLen(ctx, stream, 0).Err()) // without commands nothing is condemned
		require.Zero(t, f.sweeps(janitor.Request{DryRun: true}).Condemned)
		require.Equal(t, int64(1), f.Client.Exists(ctx, stream).Val())
	})
}

func TestCommandsOfTheDeadAreJudgedAgainByTheServer(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		for name, row := range map[string]struct {
			change func(f *fleet)
			spared janitor.SkipReason
		}{
			"the instance is back":      {func(f *fleet) { f.lives("dead") }, janitor.SkipAlive},
			"its record has changed":    {func(f *fleet) { f.record("dead", 10*time.Minute) }, janitor.SkipDoubted},
			"another leads":             {func(f *fleet) { f.Client.Set(f.t.Context(), f.layout.Lease(), "r2/successor", time.Minute) }, janitor.SkipFenced},
			"somebody answered in time": {func(f *fleet) { f.Client.XTrimMaxLen(f.t.Context(), Outbound(f.layout, "dead"), 0) }, janitor.SkipReowned},
		} {
			t.Run(name, func(t *testing.T) {
				own := w
				own.Prefix += fmt.Sprint(len(name), ":")
				var f *fleet
				f = sweeping(t, own, func(c *janitor.Config) {
					c.DeleteBatch = 1 // the second command must not be tried
					// only now that a command exists
					judges := func(_ context.Context, cmds []redis.Cmder, send func() error) error {
						if args := cmds[0].Args(); cmds[0].Name() == "evalsha" && slices.Contains(args, any("commands")) {
							row.change(f)
						}
						return send()
					}
					c.Client.(*redis.Client).AddHook(redistest.Intercept(judges))
				})
				f.adds("dead", "id", "c1", "imei", imei, "text", "x")
				f.adds("dead", "id", "c2", "imei", imei, "text", "x")
				_, _ = f.jan.Sweep(t.Context(), janitor.Request{}) // may find that it does not lead any more
				var report janitor.Report
				require.Eventually(t, func() bool {
					sweeps := f.jan.Status().Sweeps
					report = sweeps[slices.IndexFunc(sweeps, func(r janitor.Report) bool { return r.Sweep == "commands" })]
					return report.Condemned > 0
				}, patience, time.Millisecond)
				require.Equal(t, map[janitor.SkipReason]int{row.spared: 1}, report.Spared)
				require.Empty(t, f.outcomes())
			})
		}
	})
}
