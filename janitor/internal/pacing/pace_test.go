package pacing

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
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// call passes a call of length d through the pace at now, and returns the rest after it.
func (p *Pace) call(now time.Time, d time.Duration) time.Duration {
	p.rest(now)
	p.charge(now, now.Add(d))
	return max(0, p.paid.Sub(now.Add(d)))
}

// worn returns a pace whose burst is over: from now on work requires rest.
func worn(share float64) (p *Pace, now time.Time) {
	p, now = New(Config{Share: share}), time.Now()
	p.paid, p.probed = now, now
	return p, now
}

func TestAPaceRestsForWork(t *testing.T) {
	t.Parallel()
	for share, rest := range map[float64]time.Duration{
		0.25: 60 * time.Millisecond,
		0.5:  20 * time.Millisecond,
		1:    0,
	} {
		p, now := worn(share)
		for range 3 {
			got := p.call(now, 20*time.Millisecond)
			require.InDelta(t, rest.Seconds(), got.Seconds(), 1e-6, "share %v", share)
			now = now.Add(20*time.Millisecond + got)
			require.Zero(t, p.rest(now))
		}
	}
}

func TestARestThatIsTooShortForATimerIsSavedUp(t *testing.T) {
	t.Parallel()
	p, now := worn(0.5)
	for _, rest := range []time.Duration{0, 0, 1200 * time.Microsecond} {
		p.charge(now, now.Add(400*time.Microsecond))
		now = now.Add(400 * time.Microsecond)
		require.InDelta(t, rest.Seconds(), p.rest(now).Seconds(), 1e-6)
	}
}

func TestAStallIsRestedForByALimitAlone(t *testing.T) {
	t.Parallel()
	for share, rest := range map[float64]time.Duration{1: 0, 0.5: longestRest, 0.005: longestRest} {
		p, now := New(Config{Share: share}), time.Now()
		got := p.call(now, time.Minute)
		require.InDelta(t, rest.Seconds(), got.Seconds(), 1e-6, "share %v", share)
	}
}

func TestHalfOfASecondsShareNeedsNoRest(t *testing.T) {
	t.Parallel()
	p, now := New(Config{Share: 0.2}), time.Now()
	const call = 2 * time.Millisecond
	rest := func() time.Duration {
		p.probed = now
		return p.rest(now)
	}
	work := func() (calls int) { // without rest
		for ; rest() == 0; now = now.Add(call) {
			p.charge(now, now.Add(call))
			calls++
		}
		return calls
	}
	require.InDelta(t, 50, work(), 1)
	begun := now
	for rest() < 20*time.Millisecond {
		now = now.Add(rest())
		require.InDelta(t, 1, work(), 1, "then each call is rested for")
	}
	require.InDelta(t, 0.4, now.Sub(begun).Seconds(), 0.02)
	require.InDelta(t, 0.4, p.paid.Sub(now).Seconds(), 0.02, "and half a second later for the first")
	now = p.paid
	for range 50 {
		rest := p.call(now, call)
		require.InDelta(t, 0.008, rest.Seconds(), 1e-6)
		now = now.Add(call + rest)
	}
	now = now.Add(burst)
	p.call(now, 100*time.Millisecond-1)
	require.Zero(t, p.rest(now.Add(100*time.Millisecond)), "after a pause it may be put off again")
}

func TestWhatASmallCallTakesIsNoWorkOfRedis(t *testing.T) {
	t.Parallel()
	p, now := worn(0.25)
	for range samples {
		p.Observe(10 * time.Millisecond)
	}
	require.Equal(t, 20*time.Millisecond, p.charge(now, now.Add(30*time.Millisecond)))
	require.InDelta(t, 4*0.020, p.paid.Sub(now).Seconds(), 1e-6)
	now = p.paid
	require.Equal(t, 2*time.Millisecond, p.charge(now, now.Add(12*time.Millisecond)))
	require.InDelta(t, 4*0.003, p.paid.Sub(now).Seconds(), 1e-6, "but a part of each call is")
	now = p.paid
	require.Zero(t, p.charge(now, now.Add(4*time.Millisecond)))
}

func TestOneOddCallIsNoWorkOfRedis(t *testing.T) {
	t.Parallel()
	p, now := worn(0.5)
	next := func(d time.Duration) time.Duration {
		rest := p.call(now, d)
		now = now.Add(d + rest)
		return rest
	}
	const ms = time.Millisecond
	for range outlierOf {
		require.InDelta(t, 2*ms, next(2*ms), 100)
	}
	require.Zero(t, next(80*ms), "charged as 8 ms, and the rest for that is over")
	for range outlierOf {
		next(20 * ms)
	}
	require.InDelta(t, 20*ms, next(20*ms), 100, "what is always so is work")
}

func TestACallCountsForTheTimeThatRedisWorked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what  string
		works time.Duration // Redis' work, of a call ten times as long
		err   error
		calls float64 // in 20 s
	}{
		{"the rest of the call is waiting for a processor", time.Millisecond, nil, 2000},
		{"it may as well have worked for us all the time", 10 * time.Millisecond, nil, 500},
		{"others had it work", 30 * time.Millisecond, nil, 500},
		{"it waits for a disk all the time", 0, nil, 2000},
		{"it does not say", time.Millisecond, errors.New("refused"), 500},
	} {
		synctest.Test(t, func(t *testing.T) {
			cpu := time.Hour
			p := New(Config{Share: 0.25, CPU: func(context.Context) (time.Duration, error) { return cpu, c.err }})
			calls, held := 0.0, time.Duration(0) // how long the last call held it
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); calls++ {
				leave, err := p.Enter(t.Context())
				require.NoError(t, err)
				time.Sleep(10 * time.Millisecond)
				cpu += c.works
				held = leave()
			}
			require.InDelta(t, c.calls, calls, c.calls/10, c.what)
			if c.calls == 2000 {
				require.InDelta(t, time.Millisecond, held, 1e5, c.what)
			} else {
				require.Equal(t, 10*time.Millisecond, held, c.what)
			}
		})
	}
}

func TestRestThatAThrottleAddsIsCounted(t *testing.T) {
	t.Parallel()
	var extra float64
	p, now := worn(0.25)
	p.cfg.Throttled = func(reason string, seconds float64) {
		require.Equal(t, Latency, reason)
		extra += seconds
	}
	p.paid = now.Add(70 * time.Millisecond)
	require.NotZero(t, p.rest(now))
	require.Zero(t, extra)
	// Seven times as long as the work, not three.
	p.throttle.share, p.throttle.reason = 0.125, Latency
	require.NotZero(t, p.rest(now))
	require.InDelta(t, 0.04, extra, 1e-9)
}

func TestOldRestIsNoCredit(t *testing.T) {
	t.Parallel()
	p, now := worn(0.5)
	require.InDelta(t, 0.012, p.call(now, 12*time.Millisecond).Seconds(), 1e-6)
	now = p.paid.Add(burst - 1)
	require.InDelta(t, 0.010, p.call(now, 10*time.Millisecond).Seconds(), grain.Seconds()+1e-6)
}

func TestOneCallIsUnderWayAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Share: 1})
		leave, err := p.Enter(t.Context())
		require.NoError(t, err)
		var second atomic.Bool
		var waiting conc.WaitGroup
		waiting.Go(func() {
			leave, err := p.Enter(t.Context())
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

// Three concurrent sweeps, with calls and pauses of all lengths, on a virtual clock. Every few
// seconds all of them pause for a while, after which a burst is allowed.
func TestNoSecondHasMoreThanTheShare(t *testing.T) {
	t.Parallel()
	type call struct {
		at   time.Time
		took time.Duration
	}
	for _, share := range []float64{0.05, 0.25, 0.6, 1} {
		synctest.Test(t, func(t *testing.T) {
			p := New(Config{Share: share})
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
			defer stop()
			begun := time.Now()
			var busy []call
			var sweeps conc.WaitGroup
			for seed := range uint64(3) {
				sweeps.Go(func() {
					rnd := rand.New(rand.NewPCG(seed, 1))
					for ctx.Err() == nil {
						leave, err := p.Enter(ctx)
						if err != nil {
							return
						}
						d := 2 * time.Millisecond / outlier // an outlier is not charged in full
						d += time.Duration(rnd.IntN(int(2*time.Millisecond - d)))
						busy = append(busy, call{time.Now(), d})
						time.Sleep(d)
						leave()
						time.Sleep(time.Duration(rnd.IntN(int(time.Millisecond))))
						if at := time.Since(begun) % (4 * time.Second); at < 700*time.Millisecond {
							time.Sleep(700*time.Millisecond - at)
						}
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
				// A call begins before its duration is known, the last one may end in the next
				// second, and rests below the grain are saved up.
				require.LessOrEqual(t, taken.Seconds(), share+2*0.002+grain.Seconds())
			}
			require.Greater(t, all.Seconds()/20, share*0.5, "and the share is made use of")
		})
	}
}

func TestACallThatWaitsForItsTurnStopsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Share: 0.1})
		leave, err := p.Enter(t.Context())
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		leave()
		over := errors.New("over")
		ctx, cancel := context.WithCancelCause(t.Context())
		var waiting conc.WaitGroup
		for range 2 { // one rests, the other waits for it
			waiting.Go(func() {
				_, err := p.Enter(ctx)
				require.ErrorIs(t, err, over)
			})
		}
		time.Sleep(10 * time.Millisecond)
		begun := time.Now()
		cancel(over)
		waiting.Wait()
		require.Zero(t, time.Since(begun))
		leave, err = p.Enter(t.Context())
		require.NoError(t, err, "the turn was given back")
		leave()
	})
}

// server is a Redis partly used by a second client: this share of calls meets it at work.
type server struct {
	p    *Pace
	rnd  *rand.Rand
	load float64
	net  time.Duration
	err  error // of small calls
}

func newServer(share float64) *server {
	s := &server{rnd: rand.New(rand.NewPCG(1, 2)), net: 100 * time.Microsecond}
	s.p = New(Config{Share: share, Probe: func(context.Context) error {
		d := s.net + time.Duration(s.rnd.IntN(int(30*time.Microsecond)))
		if s.rnd.Float64() < s.load { // in the middle of a call of a millisecond
			d += time.Duration(s.rnd.IntN(int(time.Millisecond)))
		}
		time.Sleep(d)
		return s.err
	}})
	return s
}

// sweep makes calls for d, and returns the share at its end, and the smallest and largest.
func (s *server) sweep(t *testing.T, d time.Duration) (last, least, most float64) {
	t.Helper()
	least = 1
	for end := time.Now().Add(d); time.Now().Before(end); {
		leave, err := s.p.Enter(t.Context())
		require.NoError(t, err)
		time.Sleep(s.net + time.Millisecond/2)
		leave()
		last, _ = s.p.Share()
		least, most = min(least, last), max(most, last)
	}
	return last, least, most
}

func TestSweepingYieldsToASecondClientAndComesBack(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.25, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(share)
			_, least, most := s.sweep(t, 10*time.Second)
			require.InDelta(t, share, least, 0, "nothing is wrong")
			require.InDelta(t, share, most, 0)

			s.load = 0.6
			last, least, _ := s.sweep(t, 2*time.Second)
			require.LessOrEqual(t, last, share/3, "felt within two seconds")
			require.GreaterOrEqual(t, least, share*leastPart)
			_, _, most = s.sweep(t, time.Minute)
			require.LessOrEqual(t, most, share/2, "and for as long as it lasts, without swinging")
			_, reason := s.p.Share()
			require.Equal(t, Latency, reason)

			s.load = 0
			last, _, _ = s.sweep(t, 8*time.Second)
			require.InDelta(t, share, last, 0)
			_, reason = s.p.Share()
			require.Empty(t, reason)
		})
	}
}

func TestSmallCallsThatFailMeasureNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(0.25)
		s.sweep(t, 2*time.Second)
		s.err, s.net = errors.New("refused"), 2*time.Second
		_, least, _ := s.sweep(t, time.Minute)
		require.InDelta(t, 0.25, least, 0)
	})
}

func TestSmallCallsAreMeasuredTenTimesASecondInLongRestsToo(t *testing.T) {
	t.Parallel()
	for _, share := range []float64{0.005, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(share)
			probe, n := s.p.cfg.Probe, 0
			s.p.cfg.Probe = func(ctx context.Context) error { n++; return probe(ctx) }
			begun := time.Now()
			s.sweep(t, 10*time.Second)
			require.InDelta(t, 10, float64(n)/time.Since(begun).Seconds(), 0.5, "share %v", share)
		})
	}
}

func TestAHeartbeatThatComesLateSlowsSweepingUntilItIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newServer(0.25)
		s.sweep(t, time.Second)
		s.p.Late(false)
		time.Sleep(40 * time.Second)
		s.p.Late(true)
		share, reason := s.p.Share()
		require.InDelta(t, 0.125, share, 1e-9, "at once")
		require.Equal(t, Heartbeat, reason)
		last, _, _ := s.sweep(t, 2*time.Second)
		require.InDelta(t, 0.05, last, 1e-9)
		s.p.Late(false)
		last, _, _ = s.sweep(t, 5*time.Second)
		require.InDelta(t, 0.25, last, 0)
	})
}
