package janitor_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
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
	inBubble(t, func(f *fleet) {
		f.indexed("long dead", 10)
		stops := []func(){}
		for _, id := range []string{"x", "y", "z"} {
			stops = append(stops, f.beat(id))
			f.indexed(id, 10)
		}
		r := f.starts(minutely)
		pass(time.Minute)
		f.has(0, "long dead")
		for _, stop := range stops {
			stop()
		}
		left, err := f.PTTL(f.Context(), f.Heartbeat("x")).Result()
		require.NoError(f, err)
		fell := time.Now().Add(left)
		pass(left + 2*time.Second)
		f.indexed("another", 10) // dead without a doubt
		pass(2 * time.Second)
		require.Zero(f, f.left("another"), "a doubt is of one owner")
		f.has(30, "x", "y", "z")
		r.counts(3, "janitor_doubted_owners", "reason", "most")
		r.counts(0, "janitor_doubted_owners", "reason", "refused")
		require.Positive(f, r.value("janitor_spared_total", "reason", "doubted"))
		require.Empty(f, r.report("owners").Reason, "no hold")
		doubts := r.Status().Doubted
		require.Len(f, doubts, 3)
		for _, d := range doubts {
			require.Equal(f, "most", d.Reason)
			require.Contains(f, "x y z", d.Owner)
			require.WithinDuration(f, fell.Add(grace), d.Until, 10*time.Millisecond)
		}

		require.NoError(f, r.Resign(f.Context())) // the next leader remembers nothing
		pass(time.Until(fell.Add(grace - time.Second)))
		require.True(f, r.Status().Leading)
		f.has(30, "x", "y", "z")
		pass(3 * time.Second)
		f.has(0, "x", "y", "z")
		require.Empty(f, r.Status().Doubted)
	})
}

func TestOneOfThreeIsSweptAtItsFallAndIdleOwnersAndGoodbyesDoNotDiluteMost(t *testing.T) {
	type row struct {
		states string // of those that live
		dead   int
		doubt  bool
	}
	rows(t, inWorlds, map[string]row{
		"one of three":                     {"hh", 1, false},
		"half":                             {"hh", 2, false},
		"most":                             {"h", 2, true},
		"most of the holders, among idle":  {"hiiii", 2, true},
		"most of who stayed, many left":    {"hbbbb", 2, true},
		"a leader that holds nothing, all": {"i", 2, true},
	}, func(f *fleet, c row) {
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
			require.Equal(f, int64(5*c.dead), f.HLen(f.Context(), f.Registry()).Val())
			return
		}
		f.eventually(func() bool { return f.HLen(f.Context(), f.Registry()).Val() == 0 })
	})
}

func TestWhileRedisRefusesClientsTheSilentAreKeptForTenGracesAtMost(t *testing.T) {
	inBubble(t, func(f *fleet) {
		defer f.beat("other")()
		stop := f.beat("refused")
		f.indexed("refused", 10)
		r := f.starts(minutely)
		pass(time.Minute)
		stop()
		left, err := f.PTTL(f.Context(), f.Heartbeat("refused")).Result()
		require.NoError(f, err)
		end := time.Now().Add(left + 10*grace)
		for time.Until(end) > 10*time.Second {
			f.do("HSET", f.Witness(), "refused_at", time.Now().UnixMilli())
			pass(8 * time.Second)
			f.has(10, "refused")
		}
		require.Equal(f, []Doubt{{Owner: "refused", Reason: "refused", Until: r.Status().Doubted[0].Until}}, r.Status().Doubted)
		require.WithinDuration(f, end, r.Status().Doubted[0].Until, 10*time.Millisecond)
		r.counts(1, "janitor_doubted_owners", "reason", "refused")
		f.do("HSET", f.Witness(), "refused_at", time.Now().UnixMilli())
		pass(time.Until(end) + 2*time.Second)
		f.has(0, "refused")
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
	inBubble(t, func(f *fleet) {
		stops := map[string]func(){}
		for _, id := range []string{"dies", "stays", "stays too"} {
			stops[id] = f.plainBeat(id)
			defer stops[id]()
		}
		f.starts(func(c *Config) {
			c.Interval = time.Minute
			c.Client.AddHook(redistest.Intercept(readLess))
		})
		for range 3 {
			pass(2*time.Minute + 7*time.Second)
			f.has(30, "dies", "stays", "stays too")
			require.Regexp(f, `/p$`, f.HGet(f.Context(), f.Beats(), "dies").Val())
			stops["dies"]()
			left, err := f.PTTL(f.Context(), f.Heartbeat("dies")).Result()
			require.NoError(f, err)
			pass(left - time.Second)
			f.has(10, "dies")
			pass(4 * time.Second)
			f.has(0, "dies")
			f.has(20, "stays", "stays too")
			stops["dies"] = f.plainBeat("dies") // comes back
		}
		stops["dies"]()
	})
}

func TestAPlainOwnerWhoseHeartbeatIsEvictedBetweenBeatsIsKept(t *testing.T) {
	inBubble(t, func(f *fleet) {
		defer f.plainBeat("plain")()
		r := f.replica("r1", minutely)
		stop := r.start()
		for i := range 40 {
			pass(11 * time.Second)
			if i > 0 {
				f.do("DEL", f.Heartbeat("plain"))
			}
			if i == 20 { // the next leader has read no beat of it
				stop()
				pass(2 * time.Minute)
				f.do("DEL", f.Heartbeat("plain"))
				defer f.replica("r1", minutely).start()()
			}
			f.has(10, "plain")
		}
	})
}

func TestARecordGoesOnceItSaysNothingOfAnyOther(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.indexed("dead", 10)
		f.plain("plain", 10)
		f.do("HSET", f.Beats(), "rubbish", "x")
		f.starts(minutely)
		has := func(id string) bool { return f.HExists(f.Context(), f.Beats(), id).Val() }
		pass(time.Minute)
		require.False(f, has("rubbish"))
		f.has(0, "dead")
		require.True(f, has("dead"), "a witness")
		pass(3 * time.Minute)
		f.has(0, "plain")
		require.True(f, has("plain"))
		pass(time.Minute + grace)
		require.False(f, has("plain"), "a full scan found no more of it")
		require.True(f, has("dead"), "it may have entries that no index names")
		pass(12 * grace)
		require.False(f, has("dead"))
		require.True(f, has("r1"))
	})
}

// Who cannot be written down is kept, and everybody else is swept.
func TestPlainOwnersAreKeptWhileTheirRecordsCannotBeStored(t *testing.T) {
	t.Parallel()
	f := setup(t, poor(t, "hset"))
	f.plain("plain", 3)
	f.entries("dead", 3)
	r := f.starts()
	f.eventually(func() bool { return strings.Contains(r.lines.String(), "cannot store records") })
	f.has(3, "plain")
	require.False(t, f.HExists(t.Context(), f.Beats(), "plain").Val())
	require.Equal(t, 1, r.said("cannot store records"))
}

func TestAKeyOfAnotherTypeInThePlaceOfTheRecordsIsSetAside(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.must(f.Set(f.Context(), f.Heartbeat("r1"), "0/0", time.Hour))
		f.do("SADD", f.Roster(), "r1", "plain")
		f.do("SET", f.Beats(), "somebody's")
		r := f.silentReplica("r1", nil)
		r.leads()
		f.eventually(func() bool { return f.Type(f.Context(), f.Beats()).Val() == "hash" })
		require.Len(f, f.Keys(f.Context(), f.Beats()+":aside:*").Val(), 1)
		require.True(f, f.HExists(f.Context(), f.Beats(), "plain").Val())
	})
}

// newer is a registry that knows of a heartbeat which this server lacks.
type newer struct {
	Registry
	newest atomic.Int64
}

func (n *newer) Newest() int64 { return n.newest.Load() }

func TestALeaderThatAFormerPrimaryAnswersDeletesNothingAndResigns(t *testing.T) {
	inBubble(t, func(f *fleet) {
		var reg newer
		r := f.starts(func(c *Config) {
			c.Interval = time.Minute
			reg.Registry = c.Registry
			c.Registry = &reg
		})
		pass(time.Minute)
		require.True(f, r.Status().Leading)
		reg.newest.Store(time.Now().Add(time.Hour).UnixMilli())
		f.indexed("dead", 10)
		pass(2 * time.Second)
		require.False(f, r.Status().Leading)
		f.has(10, "dead")
		require.Zero(f, f.recorded())
		require.Equal(f, 1, r.said("a former primary answers"))
		reg.newest.Store(0)
		pass(time.Minute)
		f.has(0, "dead")
	})
}

func TestAFullScanChecksSoManyOwnersAtOnceAndNoMore(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.live("other")
		const owners, bound = 200, 3
		for i := range owners {
			f.entries(fmt.Sprint("dead", i), 2)
		}
		var now, most, all atomic.Int64
		r := f.starts(func(c *Config) {
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
		pass(30 * time.Second)
		require.Equal(f, 2*owners, r.report("registry").Evicted)
		require.GreaterOrEqual(f, all.Load(), int64(owners/16), "many small requests")
		require.Equal(f, int64(bound), most.Load())
	})
}
