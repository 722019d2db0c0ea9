package janitor

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"
)

// call has a call of length d go through the pace at now, and returns what is to be rested after it.
func (p *pace) call(now time.Time, d time.Duration) time.Duration {
	p.begin(now)
	p.end(now.Add(d))
	rest, _ := p.rest(now.Add(d))
	return rest
}

// worn is a pace in a second in which half of the share was worked already: from then on work is rested for.
func worn(share float64, small *latency) (p *pace, now time.Time) {
	p, now = newPace(share, small), time.Now()
	p.second.add(now, time.Duration(paceFree*share*float64(time.Second)))
	return p, now
}

func TestPaceOwesRestForWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		share float64
		calls []time.Duration // one after the other, each after all rest was taken
		rests []time.Duration
	}{
		"a quarter rests three times as long": {0.25, ms(2), ms(6)},
		"the whole share never rests":         {1, ms(400), ms(0)},
		"too short to bother is saved up":     {0.5, ms(0.4, 0.4, 0.4), ms(0, 0, 1.2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, now := worn(c.share, &latency{})
			for i, d := range c.calls {
				rest := p.call(now, d)
				require.InDelta(t, c.rests[i].Seconds(), rest.Seconds(), 1e-6)
				now = now.Add(d + rest)
			}
		})
	}
}

func TestAStallIsAtonedForByALimitAlone(t *testing.T) {
	t.Parallel()
	for share, rest := range map[float64]time.Duration{
		1:    0,
		0.5:  time.Second + secondSlot, // until that second is over
		0.01: restLimit,
	} {
		p, now := newPace(share, &latency{}), time.Now()
		require.Equal(t, rest, p.call(now, time.Minute), "share %v", share)
	}
}

func TestHalfOfASecondsShareNeedsNoRest(t *testing.T) {
	t.Parallel()
	p, now := newPace(0.2, &latency{}), time.Now()
	for range 50 {
		require.Zero(t, p.call(now, 2*time.Millisecond))
		now = now.Add(2 * time.Millisecond)
	}
	for range 49 {
		require.Equal(t, 8*time.Millisecond, p.call(now, 2*time.Millisecond))
		now = now.Add(10 * time.Millisecond)
	}
	rest := p.call(now, 2*time.Millisecond)
	require.InDelta(t, 0.45, rest.Seconds(), 0.05, "no second has more than its share")
	now = now.Add(3 * time.Second)
	require.Zero(t, p.call(now, 100*time.Millisecond))
}

func TestWhatASmallCallTakesIsNoWorkOfRedis(t *testing.T) {
	t.Parallel()
	l := &latency{}
	for range latencyLeast {
		l.saw(10*time.Millisecond, time.Now())
	}
	p, now := worn(0.25, l)
	rest := p.call(now, 30*time.Millisecond)
	require.Equal(t, 3*20*time.Millisecond, rest)
	now = now.Add(30*time.Millisecond + rest)
	rest = p.call(now, 12*time.Millisecond)
	require.Equal(t, 3*3*time.Millisecond, rest, "but a part of each call is")
}

func TestOneOddSpellIsNoWorkOfRedis(t *testing.T) {
	t.Parallel()
	p, now := worn(0.5, &latency{})
	next := func(d time.Duration) (rest time.Duration) {
		rest = p.call(now, d)
		now = now.Add(d + rest)
		return rest
	}
	for range paceSpells {
		require.Equal(t, 2*time.Millisecond, next(2*time.Millisecond))
	}
	require.Equal(t, 8*time.Millisecond, next(80*time.Millisecond))
	require.Equal(t, 2*time.Millisecond, next(2*time.Millisecond))
	for range paceSpells {
		next(20 * time.Millisecond)
	}
	require.Equal(t, 20*time.Millisecond, next(20*time.Millisecond), "what is always so is")
}

func TestRestThatAThrottleAddsIsCounted(t *testing.T) {
	t.Parallel()
	var extra float64
	p := newPace(0.25, &latency{})
	p.extra = func(_ string, seconds float64) { extra += seconds }
	p.rested(time.Second)
	require.Zero(t, extra)
	p.throttle.share = 0.125 // seven times as long as what was worked, not three
	p.rested(7 * time.Second)
	require.InDelta(t, 4, extra, 1e-9)
}

func TestOldRestIsNoCredit(t *testing.T) {
	t.Parallel()
	p, now := worn(0.5, &latency{})
	require.Equal(t, 12*time.Millisecond, p.call(now, 12*time.Millisecond))
	rest, _ := p.rest(now.Add(time.Hour))
	require.Zero(t, rest)
	p.second.add(now.Add(time.Hour), time.Second/4)
	require.Equal(t, 10*time.Millisecond, p.call(now.Add(time.Hour), 10*time.Millisecond))
}

func TestOneCallIsUnderWayAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(1, &latency{})
		leave, err := p.enter(t.Context())
		require.NoError(t, err)
		var second atomic.Bool
		var waiting conc.WaitGroup
		waiting.Go(func() {
			leave, err := p.enter(t.Context())
			require.NoError(t, err)
			second.Store(true)
			leave()
		})
		synctest.Wait()
		require.False(t, second.Load())
		leave()
		waiting.Wait()
		require.True(t, second.Load())
	})
}

// Three sweeps side by side, calls and pauses of all lengths, on a clock of its own.
func TestNoSecondHasMoreThanTheShare(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.05, 0.25, 0.6, 1} {
		synctest.Test(t, func(t *testing.T) {
			p := newPace(share, &latency{})
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			var busy []sample // calls on the server: when they began, and what they took
			var sweeps conc.WaitGroup
			for seed := range uint64(3) {
				sweeps.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, 1))
					for ctx.Err() == nil {
						leave, err := p.enter(ctx)
						if err != nil {
							return
						}
						d := 2 * time.Millisecond / paceOutlier // an odd one beyond that is not all charged
						d += time.Duration(rnd.IntN(int(2*time.Millisecond - d)))
						busy = append(busy, sample{d, time.Now()})
						time.Sleep(d)
						leave()
						time.Sleep(time.Duration(rnd.IntN(int(time.Millisecond))))
					}
				})
			}
			sweeps.Wait()
			var all time.Duration
			for i, first := range busy {
				all += first.took
				var taken time.Duration
				for _, c := range busy[i:] {
					if !c.at.Before(first.at.Add(time.Second)) {
						break
					}
					taken += c.took
				}
				// A call begins before what it takes is known, the last may end in the next second, and rests below the grain are saved up.
				require.LessOrEqual(t, taken.Seconds(), share+2*0.002+paceGrain.Seconds())
			}
			require.Greater(t, all.Seconds()/20, share*0.5, "and the share is made use of")
		})
	}
}

func TestWhoWaitsForItsTurnStopsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPace(0.1, &latency{})
		leave, err := p.enter(t.Context())
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		leave()
		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		var waiting conc.WaitGroup
		for range 2 { // one rests, the other waits for it
			waiting.Go(func() {
				_, err := p.enter(ctx)
				require.ErrorIs(t, err, over)
			})
		}
		time.Sleep(10 * time.Millisecond)
		begun := time.Now()
		cancel(over)
		waiting.Wait()
		require.Zero(t, time.Since(begun))
	})
}

// world is a Redis of which a second client takes a part: whoever calls meets it at work that often.
type world struct {
	p    *pace
	rnd  *rand.Rand
	load float64
	net  time.Duration
	odd  time.Duration // one small call takes so much longer
}

func newWorld(share float64) *world {
	w := &world{rnd: rand.New(rand.NewPCG(1, 2)), net: 100 * time.Microsecond}
	w.p = newPace(share, &latency{})
	w.p.ping = func(context.Context) error {
		d := w.net + time.Duration(w.rnd.IntN(int(30*time.Microsecond))) + w.odd
		w.odd = 0
		if w.rnd.Float64() < w.load { // it is in the middle of a call of a millisecond
			d += time.Duration(w.rnd.IntN(int(time.Millisecond)))
		}
		time.Sleep(d)
		return nil
	}
	return w
}

// sweep calls for so long, and returns what share it was allowed at its end, and at least and most in between.
func (w *world) sweep(t *testing.T, d time.Duration) (last, least, most float64) {
	least = 1
	for end := time.Now().Add(d); time.Now().Before(end); {
		leave, err := w.p.enter(t.Context())
		require.NoError(t, err)
		time.Sleep(w.net + time.Millisecond/2)
		leave()
		last, _ = w.p.share()
		least, most = min(least, last), max(most, last)
	}
	return last, least, most
}

func TestSweepingYieldsToASecondClientAndComesBack(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.25, 1} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(share)
			_, least, most := w.sweep(t, 10*time.Second)
			require.InDelta(t, share, least, 0, "nothing is wrong")
			require.InDelta(t, share, most, 0)

			w.load = 0.6
			last, least, _ := w.sweep(t, 2*time.Second)
			require.LessOrEqual(t, last, share/3, "felt within two seconds")
			require.GreaterOrEqual(t, least, share*throttleLeast)
			_, _, most = w.sweep(t, time.Minute)
			require.LessOrEqual(t, most, share/2, "and for as long as it lasts, without swinging")
			_, reason := w.p.share()
			require.Equal(t, throttledLatency, reason)

			w.load = 0
			last, _, _ = w.sweep(t, 8*time.Second)
			require.InDelta(t, share, last, 0)
			_, reason = w.p.share()
			require.Empty(t, reason)
		})
	}
}

func TestOneSlowCallDoesNotMatter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(0.25)
		for range 20 {
			w.odd = 100 * time.Millisecond
			_, least, _ := w.sweep(t, 2*time.Second)
			require.InDelta(t, 0.25, least, 0)
		}
	})
}

func TestASlowNetworkIsNoLoad(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(0.25)
		w.net = 40 * time.Millisecond
		_, least, _ := w.sweep(t, 20*time.Second)
		require.InDelta(t, 0.25, least, 0)
		w.net = 60 * time.Millisecond // by another way, from now on
		w.sweep(t, 10*time.Second)
		w.net = 70 * time.Millisecond
		w.sweep(t, (usualSpans+1)*usualSpan)
		last, least, _ := w.sweep(t, 20*time.Second)
		require.InDelta(t, 0.25, last, 0, "it is what the network is like")
		require.InDelta(t, 0.25, least, 0)
	})
}

func TestAHeartbeatThatComesLateSlowsSweeping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(0.25)
		w.sweep(t, time.Second)
		for range 20 {
			w.p.looked(true, time.Now())
			w.sweep(t, 100*time.Millisecond)
		}
		share, reason := w.p.share()
		require.InDelta(t, 0.05, share, 1e-9)
		require.Equal(t, throttledHeartbeat, reason)
		w.p.looked(false, time.Now())
		last, _, _ := w.sweep(t, 8*time.Second)
		require.InDelta(t, 0.25, last, 0)
	})
}

func ms(all ...float64) []time.Duration {
	var d []time.Duration
	for _, f := range all {
		d = append(d, time.Duration(f*float64(time.Millisecond)))
	}
	return d
}

func TestAHeartbeatThatIsBackThrottlesNoLonger(t *testing.T) {
	t.Parallel()
	p, now := newPace(0.5, &latency{}), time.Now()
	p.looked(true, now)
	share, reason := p.share()
	require.InDelta(t, 0.25, share, 1e-9)
	require.Equal(t, "heartbeat", reason)

	p.looked(false, now.Add(time.Second))
	p.looked(false, now.Add(time.Second+throttleGrow/5))
	share, _ = p.share()
	require.InDelta(t, 0.35, share, 1e-9, "it grows again, a fifth of the setting a second")
}

func TestALookAtTheHeartbeatsThatIsOldThrottlesNoLonger(t *testing.T) {
	t.Parallel()
	p, now := newPace(0.5, &latency{}), time.Now()
	p.looked(true, now)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.adapt(now.Add(thinFresh - 1))
	require.InDelta(t, 0.125, p.throttle.share, 1e-9)
	p.adapt(now.Add(thinFresh))
	p.adapt(now.Add(thinFresh + throttleGrow))
	require.InDelta(t, 0.5, p.throttle.share, 1e-9)
}

func TestContendersTickLessOftenWhereManyAreListedAndLeaveNoGapAlone(t *testing.T) {
	t.Parallel()
	l := newListener(nil, 30*time.Second, nil)
	for range 100 {
		require.InDelta(t, 10, l.wait(false).Seconds(), 5.001)
		require.Equal(t, 6*time.Second, l.wait(true))
	}
	l.witness.Instances = 80
	for range 100 {
		require.InDelta(t, 18, l.wait(false).Seconds(), 9.001, "never as long as GAP: the others may not contend")
		require.Equal(t, 6*time.Second, l.wait(true), "the leader lives by it")
	}
}
