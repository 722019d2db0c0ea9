package janitor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/process"
)

// A lost reply is two faults: the request ran, or it did not.
func TestALostReplyIsCountedOnce(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(h *faults, f func([]any) error){
		"it was done":     func(h *faults, f func([]any) error) { h.set(nil, f) },
		"it was not done": func(h *faults, f func([]any) error) { h.set(f, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, func(t *testing.T, f *fleet) {
				r := f.replica("r1", nil)
				r.leads()
				fault(r.faults, once(func([]any) error { return io.ErrUnexpectedEOF }))
				f.entries("dead", 1100)
				rep := r.sweep(Request{})["registry"]
				require.Equal(t, Failed, rep.Outcome)

				// The quick way's next pass sends it again, though it has nothing to reap itself.
				f.eventually(func() bool { return r.Status().Unsettled == 0 })
				require.Equal(t, firstBatch, r.counted("dead"))
				require.Equal(t, Done, r.sweep(Request{})["registry"].Outcome)
				require.Zero(t, f.left("dead"))
				require.Equal(t, 1100, r.counted("dead"))
				require.Equal(t, 1100, f.recorded())
				require.Equal(t, 1100, f.total())
			})
		})
	}
}

// The log is read before the batch is sent again.
func TestALookAtTheLogAndAReplyCountOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		r.leads()
		f.entries("dead", 20)
		r.faults.set(nil, once(func([]any) error { return io.ErrUnexpectedEOF }))
		r.sweep(Request{Sweep: "registry"})
		require.True(t, r.Pending())
		require.Equal(t, 1, r.Status().Unsettled)
		require.NoError(t, r.LookUp(t.Context()))
		require.Zero(t, r.Status().Unsettled)
		pass(2 * time.Second)
		require.False(t, r.Pending())
		require.Equal(t, 20, r.counted("dead"))
		require.Equal(t, uint64(20), r.Status().Evicted)
	})
}

func TestAFateUnknownAtTheEndOfATermIsLookedUp(t *testing.T) {
	t.Parallel()
	for name, done := range map[string]bool{"it was done": true, "it was not done": false} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, func(t *testing.T, f *fleet) {
				r := f.replica("r1", nil)
				r.leads()
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
				_, err := r.Janitor.Sweep(t.Context(), Request{})
				if not := new(NotLeaderError); err != nil {
					require.ErrorAs(t, err, &not)
				}
				f.eventually(func() bool {
					return r.LookUp(t.Context()) == nil && !r.Status().Leading && r.Status().Unsettled == 0
				})
				want := 0
				if done {
					want = len(imeis)
				}
				require.Equal(t, want, r.counted("dead"))
				require.Equal(t, want, f.recorded())
				require.Equal(t, len(imeis)-want, f.left("dead"))
				require.Equal(t, Lost, r.report("registry").Outcome)
			})
		})
	}
}

// A delayed request lands after its batch was sent again and refused.
func TestARequestThatLandsLateIsCountedOnce(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		r.leads()
		f.entries("dead", 20)
		var held []any
		r.faults.set(once(func(args []any) error {
			held = args
			f.must(f.Set(t.Context(), f.Heartbeat("dead"), "0/0", time.Minute)) // the second try is refused
			return io.ErrUnexpectedEOF
		}), nil)
		require.Equal(t, Failed, r.sweep(Request{})["registry"].Outcome)
		f.eventually(func() bool { return !r.Pending() })
		require.Zero(t, r.Status().Unsettled, "refused")
		require.NoError(t, r.LookUp(t.Context()))
		require.Equal(t, 1, r.Accounts(), "but it may yet land")
		require.Zero(t, r.counted("dead"))

		f.must(f.Del(t.Context(), f.Heartbeat("dead")))
		f.must(f.Do(t.Context(), held...))
		require.Zero(t, f.left("dead"))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, r.LookUp(over))
		require.Equal(t, 1, r.Accounts(), "what cannot be looked up stays")
		require.NoError(t, r.LookUp(t.Context()))
		require.Zero(t, r.Accounts())
		require.Equal(t, 20, r.counted("dead"))
		require.Equal(t, 20, f.recorded())
	})
}

// The term is over, and nothing of it is left in the log.
func TestAFateThatTheLogHasLostIsLoggedAndAskedForNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		var lines process.Buffer
		r := f.replica("r1", func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
		r.leads()
		f.entries("dead", 3)
		r.faults.set(nil, once(func([]any) error {
			f.must(f.XTrimMaxLen(t.Context(), f.Log(), 0))
			r.CoolDown(time.Hour)
			return io.ErrUnexpectedEOF
		}))
		_, _ = r.Janitor.Sweep(t.Context(), Request{})
		pass(time.Minute)
		require.Zero(t, r.Accounts())
		require.Zero(t, r.counted("dead"))
		require.Equal(t, 1, strings.Count(lines.String(), "eviction log trimmed too early"))
	})
}

func TestALeaderThatLostItsLeaseBetweenFindAndReapDeletesNothing(t *testing.T) {
	t.Parallel()
	for name, take := range map[string]func(f *fleet) error{
		"the lease is another's": func(f *fleet) error {
			return f.Set(f.t.Context(), f.Lease(), "r2/another", time.Minute).Err()
		},
		"the lease is gone": func(f *fleet) error { return f.Del(f.t.Context(), f.Lease()).Err() },
		"a newer term has begun": func(f *fleet) error {
			g := guard.New(f.Client, f.Client, f.Layout, timing, "r2")
			token, err := f.Get(f.t.Context(), f.Lease()).Result()
			if err != nil {
				return err
			}
			_, _, err = g.Open(f.t.Context(), guard.Lease{Token: token, Epoch: 1 << 52})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, func(t *testing.T, f *fleet) {
				r := f.replica("r1", nil)
				r.leads()
				f.entries("dead", 700)
				var left, recorded atomic.Int64
				fenced := r.PresentTerm()
				r.faults.set(once(func([]any) error { return take(f) }), func([]any) error {
					left.Store(int64(f.left("dead")))
					recorded.Store(int64(f.recorded()))
					return nil
				})
				before := r.value("janitor_spared_total", "reason", string(SkipFenced))
				_, err := r.Janitor.Sweep(t.Context(), Request{})
				if not := new(NotLeaderError); err != nil {
					require.ErrorAs(t, err, &not)
				}
				<-fenced.Done()
				require.ErrorIs(t, fenced.Cause(), ErrFenced)
				require.Equal(t, int64(700), left.Load())
				require.Zero(t, recorded.Load())
				require.InDelta(t, before+firstBatch, r.value("janitor_spared_total", "reason", string(SkipFenced)), 0)
			})
		})
	}
}

func TestATermThatIsOverHereIsNotEvenAsked(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
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
		require.ErrorIs(t, <-reaped, ErrFenced)
		require.Zero(t, asked.Load())
		require.InDelta(t, 1, r.value("janitor_spared_total", "reason", string(SkipFenced)), 0)
		require.Zero(t, r.Status().Unsettled)
	})
}

// Two janitors sweep the same dead owners, and every seventh batch finds that its lease was taken.
func TestTwoJanitorsAtOnceCountNothingTwice(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
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
			_, _ = one.LookUp(t.Context()), two.LookUp(t.Context())
			return f.HLen(t.Context(), f.Registry()).Val() == 500 && one.Status().Unsettled == 0 && two.Status().Unsettled == 0
		})
		require.Equal(t, 1500, one.counted("dead")+two.counted("dead"))
		require.Equal(t, 1500, f.recorded())
		require.Equal(t, 1500, f.total())
		require.Equal(t, 500, f.left("other"))
		fenced := one.value("janitor_spared_total", "reason", string(SkipFenced)) + two.value("janitor_spared_total", "reason", string(SkipFenced))
		require.InDelta(t, 250, fenced, 50, "a batch each time")
	})
}

func TestABatchThatTheServerRefusesDoesNotJamTheNext(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		type result struct {
			before, right, after, good error
		}
		results := make(chan result, 1)
		r := f.replica("r1", func(c *Config) {
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
		r.leads()
		res := <-results
		require.ErrorIs(t, res.before, ErrRefused)
		require.ErrorIs(t, res.right, ErrRefused, "a missing right of one sweep")
		require.NoError(t, res.after, "its record says what it did before it failed")
		require.NoError(t, res.good)
		r.Poke()
		f.eventually(func() bool { return r.Status().Unsettled == 0 })
	})
}
