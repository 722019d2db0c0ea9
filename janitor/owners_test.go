package janitor_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// plainBeat keeps an owner alive that only SETs its heartbeat and HSETs its entries, until stop.
func (f *fleet) plainBeat(id string) (stop func()) {
	f.plain(id, 10)
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	beat := func() { _ = f.Set(ctx, f.Heartbeat(id), "x", beatTTL).Err() }
	beat()
	go func() {
		defer close(ended)
		for ticks := time.NewTicker(beatEvery); ; {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				beat()
			}
		}
	}()
	return sync.OnceFunc(func() { cancel(); <-ended })
}

func TestOwnersThatFellWithMostAreDoubtedForAGraceWhoeverLeads(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.indexed("long dead", 10)
		stops := []func(){}
		for _, id := range []string{"x", "y", "z"} {
			stops = append(stops, f.beat(id))
			f.indexed(id, 10)
		}
		r := f.replica("r1", func(c *Config) { c.Interval = time.Minute })
		defer r.start()()
		pass(time.Minute)
		require.Zero(t, f.left("long dead"))
		for _, stop := range stops {
			stop()
		}
		left, err := f.PTTL(t.Context(), f.Heartbeat("x")).Result()
		require.NoError(t, err)
		fell := time.Now().Add(left)
		pass(left + 2*time.Second)
		f.indexed("another", 10) // dead without a doubt
		pass(2 * time.Second)
		require.Zero(t, f.left("another"), "a doubt is of one owner")
		require.Equal(t, 30, f.left("x")+f.left("y")+f.left("z"))
		require.InDelta(t, 3, r.value("janitor_doubted_owners", "reason", "most"), 0)
		require.Zero(t, r.value("janitor_doubted_owners", "reason", "refused"))
		require.Positive(t, r.value("janitor_spared_total", "reason", "doubted"))
		require.Empty(t, r.report("owners").Reason, "no hold")
		doubts := r.Status().Doubted
		require.Len(t, doubts, 3)
		for _, d := range doubts {
			require.Equal(t, "most", d.Reason)
			require.Contains(t, "x y z", d.Owner)
			require.WithinDuration(t, fell.Add(grace), d.Until, 10*time.Millisecond)
		}

		require.NoError(t, r.Resign(t.Context())) // the next leader remembers nothing
		pass(time.Until(fell.Add(grace - time.Second)))
		require.True(t, r.Status().Leading)
		require.Equal(t, 30, f.left("x")+f.left("y")+f.left("z"))
		pass(3 * time.Second)
		require.Zero(t, f.left("x")+f.left("y")+f.left("z"))
		require.Empty(t, r.Status().Doubted)
	})
}

func TestOneOfThreeIsSweptAtItsFallAndIdleOwnersAndGoodbyesDoNotDiluteMost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		states string // of those that live
		dead   int
		doubt  bool
	}{
		"one of three":                     {"hh", 1, false},
		"half":                             {"hh", 2, false},
		"most":                             {"h", 2, true},
		"most of the holders, among idle":  {"hiiii", 2, true},
		"most of who stayed, many left":    {"hbbbb", 2, true},
		"a leader that holds nothing, all": {"i", 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, func(t *testing.T, f *fleet) {
				r := f.replica("r1", nil)
				f.record("r1", doubt.Idle, 0, 10*beatTTL)
				for i, state := range []byte(c.states) {
					id := fmt.Sprint("other", i)
					if doubt.State(state) != doubt.Bye {
						f.live(id)
					}
					f.record(id, doubt.State(state), 0, 10*beatTTL)
				}
				for i := range c.dead {
					f.indexed(fmt.Sprint("dead", i), 5)
					f.record(fmt.Sprint("dead", i), doubt.Holds, beatTTL+10*time.Second, beatTTL)
				}
				r.leads()
				if c.doubt {
					f.eventually(func() bool { return r.value("janitor_doubted_owners", "reason", "most") == float64(c.dead) })
					require.Equal(t, int64(5*c.dead), f.HLen(t.Context(), f.Registry()).Val())
					return
				}
				f.eventually(func() bool { return f.HLen(t.Context(), f.Registry()).Val() == 0 })
			})
		})
	}
}

func TestWhileRedisRefusesClientsTheSilentAreKeptForTenGracesAtMost(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		defer f.beat("other")()
		stop := f.beat("refused")
		f.indexed("refused", 10)
		r := f.replica("r1", func(c *Config) { c.Interval = time.Minute })
		defer r.start()()
		pass(time.Minute)
		stop()
		left, err := f.PTTL(t.Context(), f.Heartbeat("refused")).Result()
		require.NoError(t, err)
		end := time.Now().Add(left + 10*grace)
		for time.Until(end) > 10*time.Second {
			f.must(f.HSet(t.Context(), f.Witness(), "refused_at", time.Now().UnixMilli()))
			pass(8 * time.Second)
			require.Equal(t, 10, f.left("refused"))
		}
		require.Equal(t, []Doubt{{Owner: "refused", Reason: "refused", Until: r.Status().Doubted[0].Until}}, r.Status().Doubted)
		require.WithinDuration(t, end, r.Status().Doubted[0].Until, 10*time.Millisecond)
		require.InDelta(t, 1, r.value("janitor_doubted_owners", "reason", "refused"), 0)
		f.must(f.HSet(t.Context(), f.Witness(), "refused_at", time.Now().UnixMilli()))
		pass(time.Until(end) + 2*time.Second)
		require.Zero(t, f.left("refused"))
	})
}

// readLess has heartbeats last 5 ms longer than is read, as the server's time is read before them.
func readLess(_ context.Context, cmds []redis.Cmder, send func() error) error {
	err := send()
	for _, cmd := range cmds {
		if left, ok := cmd.(*redis.DurationCmd); ok && left.Val() > 5*time.Millisecond {
			left.SetVal(left.Val() - 5*time.Millisecond)
		}
	}
	return err
}

func TestAPlainOwnerIsGoneSecondsAfterItsHeartbeat(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		stops := map[string]func(){}
		for _, id := range []string{"dies", "stays", "stays too"} {
			stops[id] = f.plainBeat(id)
			defer stops[id]()
		}
		r := f.replica("r1", func(c *Config) {
			c.Interval = time.Minute
			c.Client.AddHook(redistest.Intercept(readLess))
		})
		defer r.start()()
		for range 3 {
			pass(2*time.Minute + 7*time.Second)
			require.Equal(t, 30, f.left("dies")+f.left("stays")+f.left("stays too"))
			require.Regexp(t, `/p$`, f.HGet(t.Context(), f.Beats(), "dies").Val())
			stops["dies"]()
			left, err := f.PTTL(t.Context(), f.Heartbeat("dies")).Result()
			require.NoError(t, err)
			pass(left - time.Second)
			require.Equal(t, 10, f.left("dies"))
			pass(4 * time.Second)
			require.Zero(t, f.left("dies"))
			require.Equal(t, 20, f.left("stays")+f.left("stays too"))
			stops["dies"] = f.plainBeat("dies") // comes back
		}
		stops["dies"]()
	})
}

func TestAPlainOwnerWhoseHeartbeatIsEvictedBetweenBeatsIsKept(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		defer f.plainBeat("plain")()
		r := f.replica("r1", func(c *Config) { c.Interval = time.Minute })
		stop := r.start()
		for i := range 40 {
			pass(11 * time.Second)
			if i > 0 {
				f.must(f.Del(t.Context(), f.Heartbeat("plain")))
			}
			if i == 20 { // the next leader has read no beat of it
				stop()
				pass(2 * time.Minute)
				f.must(f.Del(t.Context(), f.Heartbeat("plain")))
				defer f.replica("r1", func(c *Config) { c.Interval = time.Minute }).start()()
			}
			require.Equal(t, 10, f.left("plain"))
		}
	})
}

func TestARecordGoesOnceItSaysNothingOfAnyOther(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.indexed("dead", 10)
		f.plain("plain", 10)
		f.must(f.HSet(t.Context(), f.Beats(), "rubbish", "x"))
		r := f.replica("r1", func(c *Config) { c.Interval = time.Minute })
		defer r.start()()
		has := func(id string) bool { return f.HExists(t.Context(), f.Beats(), id).Val() }
		pass(time.Minute)
		require.False(t, has("rubbish"))
		require.Zero(t, f.left("dead"))
		require.True(t, has("dead"), "a witness")
		pass(3 * time.Minute)
		require.Zero(t, f.left("plain"))
		require.True(t, has("plain"))
		pass(time.Minute + grace)
		require.False(t, has("plain"), "a full scan found no more of it")
		require.True(t, has("dead"), "it may have entries that no index names")
		pass(12 * grace)
		require.False(t, has("dead"))
		require.True(t, has("r1"))
	})
}

// Who cannot be written down is kept, and everybody else is swept.
func TestPlainOwnersAreKeptWhileTheirRecordsCannotBeStored(t *testing.T) {
	t.Parallel()
	f := setup(t, poor(t, "hset"))
	var lines process.Buffer
	f.plain("plain", 3)
	f.entries("dead", 3)
	r := f.replica("r1", func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
	r.start()
	f.eventually(func() bool { return strings.Contains(lines.String(), "cannot store records") })
	require.Equal(t, 3, f.left("plain"))
	require.False(t, f.HExists(t.Context(), f.Beats(), "plain").Val())
	require.Equal(t, 1, strings.Count(lines.String(), "cannot store records"))
}

func TestAKeyOfAnotherTypeInThePlaceOfTheRecordsIsSetAside(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.must(f.Set(t.Context(), f.Heartbeat("r1"), "0/0", time.Hour))
		f.must(f.SAdd(t.Context(), f.Roster(), "r1", "plain"))
		f.must(f.Set(t.Context(), f.Beats(), "somebody's", 0))
		r := f.silentReplica("r1", nil)
		r.leads()
		f.eventually(func() bool { return f.Type(t.Context(), f.Beats()).Val() == "hash" })
		require.Len(t, f.Keys(t.Context(), f.Beats()+":aside:*").Val(), 1)
		require.True(t, f.HExists(t.Context(), f.Beats(), "plain").Val())
	})
}

// newer is a registry that knows of a heartbeat which this server lacks.
type newer struct {
	Registry
	newest atomic.Int64
}

func (n *newer) Newest() int64 { return n.newest.Load() }

func TestALeaderThatAFormerPrimaryAnswersDeletesNothingAndResigns(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var lines process.Buffer
		var reg newer
		r := f.replica("r1", func(c *Config) {
			c.Interval = time.Minute
			c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
			reg.Registry = c.Registry
			c.Registry = &reg
		})
		defer r.start()()
		pass(time.Minute)
		require.True(t, r.Status().Leading)
		reg.newest.Store(time.Now().Add(time.Hour).UnixMilli())
		f.indexed("dead", 10)
		pass(2 * time.Second)
		require.False(t, r.Status().Leading)
		require.Equal(t, 10, f.left("dead"))
		require.Zero(t, f.recorded())
		require.Equal(t, 1, strings.Count(lines.String(), "a former primary answers"))
		reg.newest.Store(0)
		pass(time.Minute)
		require.Zero(t, f.left("dead"))
	})
}

func TestAFullScanChecksSoManyOwnersAtOnceAndNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.live("other")
		const owners, bound = 200, 3
		for i := range owners {
			f.entries(fmt.Sprint("dead", i), 2)
		}
		var now, most, all atomic.Int64
		r := f.replica("r1", func(c *Config) {
			c.ExistsConcurrency = bound
			c.Client.AddHook(redistest.Intercept(func(_ context.Context, cmds []redis.Cmder, send func() error) error {
				if named(cmds, "pttl") {
					all.Add(1)
					most.Store(max(most.Load(), now.Add(1)))
					defer now.Add(-1)
					time.Sleep(time.Millisecond)
				}
				return send()
			}))
		})
		defer r.start()()
		pass(30 * time.Second)
		require.Equal(t, 2*owners, r.report("registry").Evicted)
		require.GreaterOrEqual(t, all.Load(), int64(owners/16), "many small requests")
		require.Equal(t, int64(bound), most.Load())
	})
}
