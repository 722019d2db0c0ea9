package availability

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
)

func TestTwoClocksAreComparedWhateverOursSays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, skew := range []time.Duration{-time.Hour, -3 * time.Minute, -900 * time.Millisecond, 0, 900 * time.Millisecond, time.Hour} {
		c := clocks{source: &Clock{}}
		off := now.Add(1000 * time.Hour) // of both, against ours
		said := func(clock *Clock, begun, there time.Time) {
			clock.Learn(begun, there)
			c.compare()
		}
		said(&c.mirror, time.Now(), off)
		require.ErrorIs(t, c.check(), errUncompared)
		said(c.source, time.Now(), off.Add(skew))
		want := skew
		if skew.Abs() < skewLeast {
			want = 0
		}
		require.WithinDuration(t, now.Add(want), c.toSource(now), 100*time.Millisecond, skew)
		require.Equal(t, now, c.toMirror(c.toSource(now)), "there and back it is the same")
		require.WithinDuration(t, off.Add(skew), c.sourceNow(), time.Minute, skew)
		used := c.skew
		said(c.source, time.Now(), off.Add(skew+50*time.Millisecond))
		require.Equal(t, used, c.skew, "it does not move with each answer")
	}
	var c clocks
	require.Zero(t, c.toMirror(time.Time{}))
	require.WithinDuration(t, time.Now(), c.sourceNow(), time.Minute, "nobody has answered yet")
	c.compare()
	require.NoError(t, c.check(), "a source without a clock dates by the mirror's")
	require.Equal(t, now, c.toSource(now))
}

func TestAnAnswerThatTookLongSaysNothingUnlessItIsTheFirst(t *testing.T) {
	t.Parallel()
	var c Clock
	require.Zero(t, c.At(time.Now()))
	long, then := 2*time.Second, time.Now().Add(time.Hour)
	c.Learn(time.Now().Add(-long), then)
	require.WithinDuration(t, then, c.At(time.Now()), long, "it is better than none")
	c.Learn(time.Now(), then)
	require.WithinDuration(t, then, c.At(time.Now()), answerWithin)
	c.Learn(time.Now().Add(-long), time.Now())
	require.WithinDuration(t, then, c.At(time.Now()), answerWithin)
	c.Forget()
	c.Learn(time.Now().Add(-long), time.Now())
	require.WithinDuration(t, time.Now(), c.At(time.Now()), long)
}

// slept returns a time of ours from before this machine was suspended for d: only the wall clock
// has moved since. Its seconds start at bit 30 of the first word.
func slept(at time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(d/time.Second) << 30
	return at
}

func TestClocksAreNotComparedAcrossASuspendedMachine(t *testing.T) {
	t.Parallel()
	c := clocks{source: &Clock{}}
	before := time.Now()
	for _, clock := range []*Clock{&c.mirror, c.source} {
		clock.Learn(before, before)
		clock.here = slept(clock.here, time.Hour)
	}
	woken := before.Add(time.Hour)
	c.mirror.Learn(time.Now(), woken)
	c.compare()
	require.Equal(t, woken, c.toMirror(woken), "only one has answered since")
	c.source.Learn(time.Now(), woken.Add(3*time.Minute))
	c.compare()
	require.WithinDuration(t, woken, c.toMirror(woken.Add(3*time.Minute)), time.Second)
	var once Clock
	once.Learn(slept(time.Now(), time.Hour), time.Now())
	require.Zero(t, once.At(time.Now()), "it answered before the machine slept, and was read afterwards")
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

func TestAHeartbeatThatIsKeptWhileACommitTakesItsTimeIsNotOverruled(t *testing.T) {
	for name, c := range map[string]struct {
		fails string // the leader gets no answer
		then  func(l *leader)
	}{
		"the leader brings it": {},
		"the feed of another replica brings it": {"AutoOffline committed", func(l *leader) {
			l.did(l.reconciliation(newer, directly).deliver(l.ctx, newer, []State{l.source.state("a")}))
		}},
		"a comparison finds it": {"AutoOffline committed", func(l *leader) { l.pass("availability_reconcile") }},
	} {
		t.Run(name, func(t *testing.T) {
			swept(t, []State{silent("a"), silent("b")}, func(l *leader) {
				l.failing(c.fails)
				l.source.confirmed.set(func() {
					beat, err := l.Heartbeat(context.Background(), "a")
					if err != nil || beat != BeatKept {
						t.Errorf("%s %v", beat, err)
					}
				})
				l.offline()
				l.source.confirmed.set(func() {})
				l.mended()
				if c.then != nil {
					c.then(l)
				}
				l.is("a", true)
				l.is("b", false, "and whoever is silent goes")
				l.beats("a", BeatKept)
				l.pass("availability_reconcile")
				l.same()
			})
		})
	}
}

func TestWhoGoesOfflineAfterAHeartbeatIsOffline(t *testing.T) {
	swept(t, []State{silent("a")}, func(l *leader) {
		l.source.confirmed.set(func() {
			_, _ = l.Heartbeat(context.Background(), "a")
		})
		l.failing("AutoOffline committed") // nobody has brought it yet
		l.offline()
		l.mended()
		l.did(l.Offline(l.ctx, "a"))
		l.is("a", false)
		l.same()
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
	source := newFake(State{ID: "a", Active: true, Online: true, Version: 1, Seen: time.Now().Add(time.Hour)})
	source.skew = time.Hour
	onEmpty(t, source, func(r *rig) {
		r.clocks.compared, r.patience = false, 300*time.Millisecond
		l := r.leads(r.c.Layout, janitor.Config{})
		r.redis("SADD", r.keys.online(), "a")
		r.redis("SET", r.keys.heartbeat("a"), formatSeen(time.Now()))
		_, err := r.apply(r.ctx, newer, source.state("a"))
		r.ErrorIs(err, errUncompared)
		l.fails(errUncompared.Error())
		r.run()
		r.WithinDuration(time.Now(), l.mirrored("a").Seen, time.Minute, "the first states of the feed are converted")
		r.WithinDuration(time.Now().Add(time.Hour), source.state("a").Seen, time.Minute)
	}, slowly)
}
