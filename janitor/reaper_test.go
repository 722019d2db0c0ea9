package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// A lost reply is two faults: the request ran, or it did not.
func TestALostReplyIsCountedOnce(t *testing.T) {
	rows(t, inWorlds, map[string]func(h *faults, f func([]any) error){
		"it was done":     func(h *faults, f func([]any) error) { h.set(nil, f) },
		"it was not done": func(h *faults, f func([]any) error) { h.set(f, nil) },
	}, func(f *fleet, fault func(h *faults, f func([]any) error)) {
		r := f.leader()
		fault(r.faults, once(func([]any) error { return io.ErrUnexpectedEOF }))
		f.entries("dead", 1100)
		rep := r.sweep(Request{})["registry"]
		require.Equal(f, Failed, rep.Outcome)

		// The quick way's next pass sends it again, though it has nothing to reap itself.
		f.eventually(func() bool { return r.Status().Unsettled == 0 })
		require.Equal(f, firstBatch, r.counted("dead"))
		require.Equal(f, Done, r.sweep(Request{})["registry"].Outcome)
		f.has(0, "dead")
		require.Equal(f, 1100, r.counted("dead"))
		require.Equal(f, 1100, f.recorded())
		require.Equal(f, 1100, f.total())
	})
}

// The log is read before the batch is sent again.
func TestALookAtTheLogAndAReplyCountOnce(t *testing.T) {
	inBubble(t, func(f *fleet) {
		r := f.leader()
		f.entries("dead", 20)
		r.faults.set(nil, once(func([]any) error { return io.ErrUnexpectedEOF }))
		r.sweep(Request{Sweep: "registry"})
		require.True(f, r.Pending())
		require.Equal(f, 1, r.Status().Unsettled)
		require.NoError(f, r.LookUp(f.Context()))
		require.Zero(f, r.Status().Unsettled)
		pass(2 * time.Second)
		require.False(f, r.Pending())
		require.Equal(f, 20, r.counted("dead"))
		require.Equal(f, uint64(20), r.Status().Evicted)
	})
}

func TestAFateUnknownAtTheEndOfATermIsLookedUp(t *testing.T) {
	rows(t, inWorlds, map[string]bool{"it was done": true, "it was not done": false}, func(f *fleet, done bool) {
		r := f.leader()
		imeis := f.entries("dead", 20)
		cut := once(func([]any) error {
			r.CoolDown(time.Hour) // and it will not lead again in this test
			return io.ErrUnexpectedEOF
		})
		if done {
			r.faults.set(nil, cut)
		} else {
			r.faults.set(cut, nil)
		}
		_, err := r.Janitor.Sweep(f.Context(), Request{})
		if not := new(NotLeaderError); err != nil {
			require.ErrorAs(f, err, &not)
		}
		f.eventually(func() bool {
			return r.LookUp(f.Context()) == nil && !r.Status().Leading && r.Status().Unsettled == 0
		})
		want := 0
		if done {
			want = len(imeis)
		}
		require.Equal(f, want, r.counted("dead"))
		require.Equal(f, want, f.recorded())
		f.has(len(imeis)-want, "dead")
		require.Equal(f, Lost, r.report("registry").Outcome)
	})
}

// A delayed request lands after its batch was sent again and refused.
func TestARequestThatLandsLateIsCountedOnce(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		r := f.leader()
		f.entries("dead", 20)
		var held []any
		r.faults.set(once(func(args []any) error {
			held = args
			f.must(f.Set(f.Context(), f.Heartbeat("dead"), "0/0", time.Minute)) // the second try is refused
			return io.ErrUnexpectedEOF
		}), nil)
		require.Equal(f, Failed, r.sweep(Request{})["registry"].Outcome)
		f.eventually(func() bool { return !r.Pending() })
		require.Zero(f, r.Status().Unsettled, "refused")
		require.NoError(f, r.LookUp(f.Context()))
		require.Equal(f, 1, r.Accounts(), "but it may yet land")
		require.Zero(f, r.counted("dead"))

		f.do("DEL", f.Heartbeat("dead"))
		f.must(f.Do(f.Context(), held...))
		f.has(0, "dead")
		over, cancel := context.WithCancel(f.Context())
		cancel()
		require.Error(f, r.LookUp(over))
		require.Equal(f, 1, r.Accounts(), "what cannot be looked up stays")
		require.NoError(f, r.LookUp(f.Context()))
		require.Zero(f, r.Accounts())
		require.Equal(f, 20, r.counted("dead"))
		require.Equal(f, 20, f.recorded())
	})
}

// The term is over, and nothing of it is left in the log.
func TestAFateThatTheLogHasLostIsLoggedAndAskedForNoMore(t *testing.T) {
	inBubble(t, func(f *fleet) {
		r := f.leader()
		f.entries("dead", 3)
		r.faults.set(nil, once(func([]any) error {
			f.must(f.XTrimMaxLen(f.Context(), f.Log(), 0))
			r.CoolDown(time.Hour)
			return io.ErrUnexpectedEOF
		}))
		_, _ = r.Janitor.Sweep(f.Context(), Request{})
		pass(time.Minute)
		require.Zero(f, r.Accounts())
		require.Zero(f, r.counted("dead"))
		require.Equal(f, 1, r.said("eviction log trimmed too early"))
	})
}

func TestALeaderThatLostItsLeaseBetweenFindAndReapDeletesNothing(t *testing.T) {
	rows(t, inWorlds, map[string]func(f *fleet) error{
		"the lease is another's": func(f *fleet) error {
			return f.Set(f.Context(), f.Lease(), "r2/another", time.Minute).Err()
		},
		"the lease is gone": func(f *fleet) error { return f.Del(f.Context(), f.Lease()).Err() },
		"a newer term has begun": func(f *fleet) error {
			g := guard.New(f.Client, f.Client, f.Layout, timing, "r2")
			token, err := f.Get(f.Context(), f.Lease()).Result()
			if err != nil {
				return err
			}
			_, _, err = g.Open(f.Context(), guard.Lease{Token: token, Epoch: 1 << 52})
			return err
		},
	}, func(f *fleet, take func(f *fleet) error) {
		r := f.leader()
		f.entries("dead", 700)
		var left, recorded atomic.Int64
		fenced := r.PresentTerm()
		r.faults.set(once(func([]any) error { return take(f) }), func([]any) error {
			left.Store(int64(f.left("dead")))
			recorded.Store(int64(f.recorded()))
			return nil
		})
		before := r.value("janitor_spared_total", "reason", string(SkipFenced))
		_, err := r.Janitor.Sweep(f.Context(), Request{})
		if not := new(NotLeaderError); err != nil {
			require.ErrorAs(f, err, &not)
		}
		<-fenced.Done()
		require.ErrorIs(f, fenced.Cause(), ErrFenced)
		require.Equal(f, int64(700), left.Load())
		require.Zero(f, recorded.Load())
		r.counts(before+firstBatch, "janitor_spared_total", "reason", string(SkipFenced))
	})
}

func TestATermThatIsOverHereIsNotEvenAsked(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		reaped := make(chan error, 1)
		var asked atomic.Int64
		var r *replica
		r = f.replica("r1", func(c *Config) {
			c.Sweeps = []Sweeper{fakeSweep{name: "slow", pass: func(ctx context.Context, p *Pass) error {
				r.CoolDown(time.Hour)
				<-ctx.Done()
				r.faults.set(func([]any) error { asked.Add(1); return nil }, nil)
				// With a context that outlives the term, like that of a process that has slept.
				a, err := p.Delete(context.WithoutCancel(ctx),
					Batch{Owner: "dead", Body: guard.EvictEntries, Items: []string{"x"}})
				if a.Verdict != guard.Fenced {
					err = fmt.Errorf("the answer is %q", a.Verdict)
				}
				reaped <- err
				return err
			}}}
		})
		r.start()
		require.ErrorIs(f, <-reaped, ErrFenced)
		require.Zero(f, asked.Load())
		r.counts(1, "janitor_spared_total", "reason", string(SkipFenced))
		require.Zero(f, r.Status().Unsettled)
	})
}

// Two janitors sweep the same dead owners, and every seventh batch finds that its lease was taken.
func TestTwoJanitorsAtOnceCountNothingTwice(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		f.live("other", "third")
		f.entries("other", 500)
		f.entries("dead", 1500)
		change := func(c *Config) { c.Interval, c.LeaseTTL, c.DeleteBatch = 100*time.Millisecond, 3*time.Second, 50 }
		one, two := f.replica("r1", change), f.replica("r2", change)
		var batches atomic.Int64
		tear := func([]any) error {
			if batches.Add(1)%7 == 0 {
				return f.Del(context.Background(), f.Lease()).Err()
			}
			return nil
		}
		one.faults.set(tear, nil)
		two.faults.set(tear, nil)
		one.start()
		two.start()
		f.eventually(func() bool {
			_, _ = one.LookUp(f.Context()), two.LookUp(f.Context())
			return f.HLen(f.Context(), f.Registry()).Val() == 500 && one.Status().Unsettled == 0 && two.Status().Unsettled == 0
		})
		require.Equal(f, 1500, one.counted("dead")+two.counted("dead"))
		require.Equal(f, 1500, f.recorded())
		require.Equal(f, 1500, f.total())
		f.has(500, "other")
		fenced := one.value("janitor_spared_total", "reason", string(SkipFenced)) + two.value("janitor_spared_total", "reason", string(SkipFenced))
		require.InDelta(f, 250, fenced, 50, "a batch each time")
	})
}

func TestABatchThatTheServerRefusesDoesNotJamTheNext(t *testing.T) {
	inWorlds(t, func(f *fleet) {
		type result struct {
			before, right, after, good error
		}
		results := make(chan result, 1)
		r := f.leader(func(c *Config) {
			c.Sweeps = []Sweeper{fakeSweep{name: "odd", pass: func(ctx context.Context, p *Pass) error {
				var res result
				key := []string{p.Layout().Prefix + "k"}
				_, res.before = p.Delete(ctx, Batch{Body: guard.NewBody("return redis.call('NO SUCH COMMAND')"), Keys: key, Items: []string{"x"}})
				_, res.right = p.Delete(ctx, Batch{Body: guard.NewBody("return redis.error_reply('ERR NOPERM: no right')"), Keys: key, Items: []string{"x"}})
				_, res.after = p.Delete(ctx, Batch{Body: guard.NewBody("record(1, 0, 'keys', {'x'}) return redis.call('NO SUCH COMMAND')"), Keys: key, Items: []string{"x"}})
				var a guard.Answer
				a, res.good = p.Delete(ctx, Batch{Body: guard.NewBody("record(0, 0, 'keys', {}) return answer('DONE', 0, 0)"), Keys: key, Items: []string{"x"}})
				if a.Verdict != guard.Done {
					res.good = errors.New(string(a.Verdict))
				}
				results <- res
				return nil
			}}}
		})
		res := <-results
		require.ErrorIs(f, res.before, ErrRefused)
		require.ErrorIs(f, res.right, ErrRefused, "a missing right of one sweep")
		require.NoError(f, res.after, "its record says what it did before it failed")
		require.NoError(f, res.good)
		r.Poke()
		f.eventually(func() bool { return r.Status().Unsettled == 0 })
	})
}
