package availability

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

func TestTwoClocksAreComparedWhateverOursSays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, skew := range []time.Duration{-time.Hour, -3 * time.Minute, -900 * time.Millisecond, 0, 900 * time.Millisecond, time.Hour} {
		var c clocks
		off := now.Add(1000 * time.Hour) // of both, against ours
		c.mirrorSaid(time.Now(), off)
		c.sourceSaid(time.Now(), off.Add(skew))
		want := skew
		if skew.Abs() < skewLeast {
			want = 0
		}
		require.WithinDuration(t, now.Add(want), c.toSource(now), 100*time.Millisecond, skew)
		require.Equal(t, now, c.toMirror(c.toSource(now)), "there and back it is the same")
		require.WithinDuration(t, off.Add(skew), c.sourceNow(), time.Minute, skew)
		used := c.skew
		c.sourceSaid(time.Now(), off.Add(skew+50*time.Millisecond))
		require.Equal(t, used, c.skew, "it does not move with each answer")
		c.sourceSaid(time.Now().Add(-time.Minute), off)
		require.Equal(t, used, c.skew, "what took long says nothing")
	}
	var c clocks
	require.Zero(t, c.toMirror(time.Time{}))
	require.WithinDuration(t, time.Now(), c.sourceNow(), time.Minute, "nobody has answered yet")
}

// slept returns a time of ours from before this machine was suspended for d: only the wall clock
// has moved since. Its seconds start at bit 30 of the first word.
func slept(at time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(d/time.Second) << 30
	return at
}

func TestClocksAreNotComparedAcrossASuspendedMachine(t *testing.T) {
	t.Parallel()
	for name, said := range map[string][2]func(*clocks, time.Time, time.Time){
		"the source answers first":    {(*clocks).sourceSaid, (*clocks).mirrorSaid},
		"the mirror answers first":    {(*clocks).mirrorSaid, (*clocks).sourceSaid},
		"only one answers, and again": {(*clocks).sourceSaid, (*clocks).sourceSaid},
	} {
		var c clocks
		before := time.Now()
		c.mirrorSaid(before, before)
		c.sourceSaid(before, before)
		c.mirror.here, c.source.here = slept(c.mirror.here, time.Hour), slept(c.source.here, time.Hour)
		woken := before.Add(time.Hour)
		for _, said := range said {
			said(&c, time.Now(), woken)
			require.Equal(t, woken, c.toMirror(woken), name)
		}
		c.mirrorSaid(time.Now(), woken)
		c.sourceSaid(time.Now(), woken.Add(3*time.Minute))
		require.WithinDuration(t, woken, c.toMirror(woken.Add(3*time.Minute)), time.Second, name)
	}
	var c clocks
	c.mirrorSaid(time.Now(), time.Now())
	c.sourceSaid(slept(time.Now(), time.Hour), time.Now().Add(-time.Hour))
	require.Zero(t, c.skew, "it answered before the machine slept, and was read afterwards")
}

func TestWhatIsKnownAgesWhileTheMachineIsSuspended(t *testing.T) {
	t.Parallel()
	m := &Mirror{c: Config{Tick: defaultTick}, patience: callTimeout}
	m.upToDate(time.Now())
	require.Zero(t, m.behind())
	m.upToDate(slept(time.Now(), time.Hour))
	require.GreaterOrEqual(t, m.behind(), time.Hour, "the source may have changed meanwhile")
	require.GreaterOrEqual(t, m.answer(lastSnapshot{at: slept(time.Now(), time.Hour)}, FromStale).Age, time.Hour)
}

// skewed is a pass of everything with a source whose clock is another.
func skewed(t *testing.T, test func(t *testing.T, l *leader, skew time.Duration)) {
	t.Helper()
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		t.Run(fmt.Sprint(skew), func(t *testing.T) {
			redistest.OnReal(t, func(t *testing.T, w redistest.World) {
				source := newFake(State{ID: "a", Active: true}, State{ID: "silent", Active: true})
				source.skew = skew
				r := newRig(t, w, source, slowly)
				l := r.leads(w.Options, r.c.Layout, false)
				r.run()
				at := r.Health().FeedAt
				r.eventually(func() bool { return r.Health().FeedAt.After(at) && r.clocks.skewIs(skew) }, "clocks are compared")
				for _, id := range []string{"a", "silent"} {
					_, err := r.Online(t.Context(), id)
					require.NoError(t, err)
				}
				silent := source.state("silent")
				silent.Seen, silent.Version = silent.Seen.Add(-2*time.Minute), silent.Version+1
				source.put(silent)
				require.NoError(t, l.client.Del(t.Context(), r.keys.heartbeat("silent")).Err())
				_, err := r.apply(t.Context(), newer, silent)
				require.NoError(t, err)
				test(t, l, skew)
			})
		})
	}
}

func (c *clocks) skewIs(skew time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return (c.skew - skew).Abs() < time.Second
}

func TestASourceWhoseClockIsAnotherChangesNothing(t *testing.T) {
	skewed(t, func(t *testing.T, l *leader, skew time.Duration) {
		require.WithinDuration(t, time.Now(), l.mirrored("a").Seen, 30*time.Second, "in Redis it is of Redis' clock")
		found, err := l.FindAvailable(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, Answer[[]Available]{[]Available{{"a", 0}}, FromValkey, 0}, found)

		// The app of one pings, by the way of the source; Redis has lost what it knew.
		beat, err := l.HeartbeatAtSource(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, BeatKept, beat)
		l.eventually(func() bool { return l.mirrored("a").Version == l.source.state("a").Version }, "the feed brings it")
		old := formatSeen(time.Now().Add(-time.Hour))
		require.NoError(t, l.client.Set(t.Context(), l.keys.heartbeat("a"), old, 0).Err())
		l.offline()
		require.True(t, l.source.state("a").Online, "the source knows better, by its own clock")
		require.False(t, l.source.state("silent").Online)

		// A heartbeat that Redis took is stored by the source's clock.
		_, err = l.Online(t.Context(), "a")
		require.NoError(t, err)
		_, err = l.Heartbeat(t.Context(), "a")
		require.NoError(t, err)
		s := l.source.state("a")
		s.Seen = time.Time{}
		l.source.put(s)
		l.pass("availability_heartbeats")
		require.WithinDuration(t, time.Now().Add(skew), l.source.state("a").Seen, 30*time.Second)
	})
}

func TestAHeartbeatThatIsKeptWhileACommitTakesItsTimeIsNotOverruled(t *testing.T) {
	for name, c := range map[string]struct {
		fails string // the leader gets no answer
		then  func(l *leader)
	}{
		"the leader brings it": {},
		"the feed of another replica brings it": {"AutoOffline committed", func(l *leader) {
			_, err := l.deliver(l.t.Context(), l.source.state("a"))
			require.NoError(l.t, err)
		}},
		"a comparison finds it": {"AutoOffline committed", func(l *leader) { l.pass("availability_reconcile") }},
	} {
		t.Run(name, func(t *testing.T) {
			swept(t, []State{silent("a"), silent("b")}, func(t *testing.T, l *leader) {
				l.failing(c.fails)
				l.source.confirmed.set(func() {
					_ = l.client.Del(context.Background(), l.keys.condemned()).Err() // the new master never had it
					beat, err := l.Heartbeat(context.Background(), "a")
					if err != nil || beat != BeatKept {
						t.Errorf("%s %v", beat, err)
					}
				})
				l.offline()
				l.source.confirmed.set(func() {})
				l.source.fault.set(func(string) error { return nil })
				if c.then != nil {
					c.then(l)
				}
				require.True(t, l.source.state("a").Online)
				require.False(t, l.source.state("b").Online, "and whoever is silent goes")
				beat, err := l.Heartbeat(t.Context(), "a")
				require.NoError(t, err)
				require.Equal(t, BeatKept, beat)
				l.pass("availability_reconcile")
				l.same()
			})
		})
	}
}

func TestWhoGoesOfflineAfterAHeartbeatIsOffline(t *testing.T) {
	swept(t, []State{silent("a")}, func(t *testing.T, l *leader) {
		l.source.confirmed.set(func() {
			_ = l.client.Del(context.Background(), l.keys.condemned()).Err()
			_, _ = l.Heartbeat(context.Background(), "a")
		})
		l.failing("AutoOffline committed") // nobody has brought it yet
		l.offline()
		l.source.fault.set(func(string) error { return nil })
		_, err := l.Offline(t.Context(), "a")
		require.NoError(t, err)
		require.False(t, l.source.state("a").Online)
		l.same()
	})
}

func TestTheFallbackAges(t *testing.T) {
	inTime(t, func(t *testing.T, w redistest.World, l *line) {
		const stale, brought = 20 * time.Second, 10 * time.Second
		source := newFake(online("silent"), online("pings"))
		source.settings.StaleAfter = stale
		r := newRig(t, w, source, func(c *Config) { c.HeartbeatInterval, c.Tick = brought, 5*time.Second })
		r.patience = callTimeout
		r.run()
		r.leads(w.Options, r.c.Layout, false)
		for range 30 {
			for _, id := range []string{"silent", "pings"} {
				_, err := r.Heartbeat(t.Context(), id)
				require.NoError(t, err)
			}
			time.Sleep(time.Second)
		}
		l.cut(true)
		found := func() (ids []string) {
			a, err := r.FindAvailable(t.Context(), 0)
			require.NoError(t, err)
			require.Equal(t, FromPostgres, a.From)
			for _, one := range a.Value {
				ids = append(ids, one.ID)
			}
			return ids
		}
		for second := range 50 {
			_, err := r.HeartbeatAtSource(t.Context(), "pings")
			require.NoError(t, err)
			ids := found()
			require.Contains(t, ids, "pings", "%d s", second)
			if second < int(stale/time.Second) {
				require.Contains(t, ids, "silent", "it may have pinged the Redis that is gone")
			}
			if second > int((stale+2*brought)/time.Second)+1 {
				require.NotContains(t, ids, "silent", "%d s", second)
				reachable, err := r.Reachable(t.Context(), "silent")
				require.NoError(t, err)
				require.False(t, reachable.Value)
			}
			time.Sleep(time.Second)
		}
		l.cut(false) // else go-redis dials for ever
		time.Sleep(10 * time.Second)
	})
}

func TestAReplicaThatNeverReachedRedisAgesToo(t *testing.T) {
	t.Parallel()
	m := &Mirror{c: Config{HeartbeatInterval: time.Minute}, kept: time.Now().Add(-time.Hour)}
	s := Settings{StaleAfter: 2 * time.Minute, RequirePing: true}
	require.WithinDuration(t, time.Now().Add(-4*time.Minute), m.cutoff(s), time.Minute)
	m.kept = time.Now()
	require.Zero(t, m.cutoff(s), "it is not known what pings there were")
}

func TestNoTimeIsConvertedBeforeTheClocksAreCompared(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(State{ID: "a", Active: true, Online: true, Version: 1, Seen: time.Now().Add(time.Hour)})
		source.skew = time.Hour
		r := newRig(t, w, source, slowly)
		r.clocks.compared, r.patience = false, 300*time.Millisecond
		l := r.leads(w.Options, r.c.Layout, false)
		require.NoError(t, w.Client.SAdd(t.Context(), r.keys.online(), "a").Err())
		require.NoError(t, w.Client.Set(t.Context(), r.keys.heartbeat("a"), formatSeen(time.Now()), 0).Err())
		_, err := r.apply(t.Context(), newer, source.state("a"))
		require.ErrorIs(t, err, errUncompared)
		reports := l.sweep("")
		for _, sweep := range l.Sweeps() {
			name, report := sweep.Name(), reports[sweep.Name()]
			require.Equal(t, janitor.Failed, report.Outcome, name)
			require.Contains(t, report.Error, errUncompared.Error(), name)
		}
		r.run()
		require.WithinDuration(t, time.Now(), l.mirrored("a").Seen, time.Minute, "the first states of the feed are converted")
		require.WithinDuration(t, time.Now().Add(time.Hour), source.state("a").Seen, time.Minute)
	})
}

func TestASourceWithoutAClockDatesByTheMirrors(t *testing.T) {
	t.Parallel()
	var c clocks
	c.sourceSaid(time.Now(), time.Time{})
	require.NoError(t, c.check())
	now := time.Now()
	require.Equal(t, now, c.toSource(now))
}

func TestTheFirstComparisonMayBeSlow(t *testing.T) {
	t.Parallel()
	var c clocks
	c.mirrorSaid(time.Now(), time.Now())
	require.Error(t, c.check())
	c.sourceSaid(time.Now().Add(-2*time.Second), time.Now().Add(time.Hour))
	require.NoError(t, c.check(), "it is better than none")
	require.WithinDuration(t, time.Now().Add(time.Hour), c.toSource(time.Now()), 2*time.Second)
	c.sourceSaid(time.Now(), time.Now().Add(time.Hour))
	require.WithinDuration(t, time.Now().Add(time.Hour), c.toSource(time.Now()), skewMoves, "a quick one is taken as soon as there is one")
}

// Nobody tells it what the feeding replica measured.
func TestAReplicaWithoutRedisKnowsTheSourcesClock(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		source := newFake(online("a"))
		source.skew = -time.Hour
		r := newRig(t, w, source)
		f := newFeed(r.Mirror)
		r.rdb.AddHook(commands{func(redis.Cmder) error { return errors.New("connection refused") }})
		require.Error(t, f.look(t.Context()))
		require.WithinDuration(t, source.now(), r.clocks.sourceNow(), time.Minute)
	})
}
