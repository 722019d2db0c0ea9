package janitor_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// books is pendingBatches without a janitor, and what it counted.
type books struct {
	*Books
	f       *fleet
	guard   *guard.Guard
	control *redis.Client
	counted int
	lost    []guard.BatchID
}

func newBooks(t *testing.T, w redistest.World) *books {
	f := setup(t, w)
	b := &books{f: f, control: redis.NewClient(lease.Options(w.Options))}
	t.Cleanup(func() { require.NoError(t, b.control.Close()) })
	f.live("leader")
	require.NoError(t, f.Set(t.Context(), f.Lease(), "leader/1", time.Minute).Err())
	b.guard = guard.New(f.Client, b.control, f.Layout, timing, "leader")
	b.Books = NewBooks(b.guard, func(_ guard.Batch, a guard.Answer) { b.counted += a.Deleted },
		func(lost guard.BatchID) { b.lost = append(b.lost, lost) })
	return b
}

// batch evicts one entry of its own owner.
func (b *books) batch(n uint64) guard.Batch {
	owner := fmt.Sprintf("dead-%d", n)
	items := b.f.entries(owner, 1)
	return guard.Batch{
		Evidence: guard.Evidence{Record: b.f.HGet(b.f.t.Context(), b.f.Beats(), owner).Val()},
		ID:       guard.BatchID{Epoch: 100, N: n}, Token: "leader/1", Sweep: "registry", Owner: owner, Body: registry.EvictEntries,
		Keys: registry.EntryKeys(b.f.Layout, owner), Items: items,
	}
}

// done has the server run a batch.
func (b *books) done(t *testing.T, batch guard.Batch) guard.Answer {
	a, err := b.guard.Do(t.Context(), batch)
	require.NoError(t, err)
	require.Equal(t, guard.Done, a.Verdict)
	return a
}

func TestPendingBatchesKeepTheNewestOfWhatWasRefusedAndAllThatIsUnknown(t *testing.T) {
	t.Parallel()
	l := NewBooks(nil, nil, nil)
	id := func(epoch, n uint64) guard.Batch { return guard.Batch{ID: guard.BatchID{Epoch: epoch, N: n}} }
	for epoch := range uint64(5) { // one of unknown fate per term, then refused ones
		l.Open(id(epoch, 1))
		for n := range uint64(1000) {
			l.Open(id(epoch, n+2))
			l.Refused(id(epoch, n+2))
		}
	}
	require.Equal(t, 5+RefusedMost, len(l.Accounts()), "not Len, which would print them all")
	require.Equal(t, 5, l.Unknown())
	for epoch := range uint64(5) {
		require.Contains(t, l.Accounts(), guard.BatchID{Epoch: epoch, N: 1})
	}
	for n := range uint64(RefusedMost) {
		require.Contains(t, l.Accounts(), guard.BatchID{Epoch: 4, N: 1001 - n})
	}
	l.Refused(id(9, 9)) // answered DONE before
	require.NotContains(t, l.Accounts(), guard.BatchID{Epoch: 9, N: 9})
}

func TestABatchWhoseAnswerIsOnItsWayIsNotLookedUp(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		b := newBooks(t, w)
		batch := b.batch(1)
		b.Asked(batch)
		a := b.done(t, batch)
		require.NoError(t, b.LookUp(t.Context())) // a tick in between
		require.Zero(t, b.counted)
		b.Recorded(batch, a)
		require.Equal(t, 1, b.counted)
		require.Empty(t, b.Accounts())

		lost := b.batch(2)
		b.Asked(lost)
		b.done(t, lost)
		b.Unanswered(lost)
		require.NoError(t, b.LookUp(t.Context()))
		require.Equal(t, 2, b.counted)
	})
}

func TestManyAccountsAreSettledInOneRoundTrip(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		b := newBooks(t, w)
		require.NoError(t, b.control.Ping(t.Context()).Err()) // the connection's own round trips
		var trips atomic.Int64
		b.control.AddHook(roundTrips{&trips})
		require.NoError(t, b.LookUp(t.Context()))
		require.Zero(t, trips.Load(), "nothing is open")
		for n := range uint64(60) {
			batch := b.batch(n + 1)
			b.Open(batch)
			if n%3 == 0 { // its reply was lost
				b.done(t, batch)
			} else {
				b.Refused(batch)
			}
		}
		require.NoError(t, b.LookUp(t.Context()))
		require.Equal(t, int64(1), trips.Load())
		require.Equal(t, 20, b.counted)
		require.Len(t, b.Accounts(), 40, "while the lease stands they may yet land")
		require.NoError(t, b.f.Del(t.Context(), b.f.Lease()).Err())
		require.NoError(t, b.LookUp(t.Context()))
		require.Empty(t, b.Accounts())
		require.Equal(t, 20, b.counted)
	})
}

func TestABatchBeforeTheBeginningOfATrimmedLogIsToldAsLost(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		b := newBooks(t, w)
		v, _, err := b.guard.Open(t.Context(), guard.Lease{Token: "leader/1", Epoch: 100})
		require.NoError(t, err)
		require.Equal(t, guard.Done, v)
		never, ran, refused := b.batch(3), b.batch(2), b.batch(1)
		b.Open(refused)
		b.Refused(refused)
		b.Open(ran)
		b.done(t, ran) // its reply was lost
		require.NoError(t, b.f.XTrimMaxLen(t.Context(), b.f.Log(), 0).Err())
		require.NoError(t, b.LookUp(t.Context()))
		require.Empty(t, b.lost, "while the lease stands they may yet land")
		require.NoError(t, b.f.Del(t.Context(), b.f.Lease()).Err())
		require.NoError(t, b.LookUp(t.Context()))
		require.Equal(t, []guard.BatchID{ran.ID}, b.lost, "a refused one was answered")
		require.Empty(t, b.Accounts())

		require.NoError(t, b.f.Set(t.Context(), b.f.Lease(), "leader/1", time.Minute).Err())
		b.Open(never)
		require.NoError(t, b.f.XAdd(t.Context(), &redis.XAddArgs{
			Stream: b.f.Log(), ID: "100-4", Values: []string{"count", "0"}, // a later one of its term
		}).Err())
		require.NoError(t, b.f.Del(t.Context(), b.f.Lease()).Err())
		require.NoError(t, b.LookUp(t.Context()))
		require.Len(t, b.lost, 2, "nothing of the term stands before it")
		require.Zero(t, b.counted)
	})
}

// A batch was refused but landed late, and a later one was recorded: it is counted, even if the
// first look at the log fails.
func TestABatchThatLandedLateIsCountedAfterALaterOneWasRecorded(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		b := newBooks(t, w)
		late, later := b.batch(1), b.batch(2)
		b.Open(late)
		b.Refused(late)
		b.done(t, late)
		b.Open(later)
		b.Recorded(later, b.done(t, later))
		require.Equal(t, 1, b.counted)

		cut, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, b.LookUp(cut))
		require.Len(t, b.Accounts(), 1, "what could not be looked up stays")
		require.NoError(t, b.LookUp(t.Context()))
		require.Equal(t, 2, b.counted)
		require.Empty(t, b.Accounts())
	})
}

// An index of another type is left alone, and prevents no eviction: no batch is refused, and the
// quick way reports that it could not read it.
func TestAnIndexOfAnotherTypeStopsNothingAndIsShown(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		f.entries("dead", 700)
		require.NoError(t, f.Set(t.Context(), f.Devices("dead"), "oops", 0).Err())
		require.NoError(t, f.SAdd(t.Context(), f.Roster(), "dead").Err())
		var lines process.Buffer
		r := f.replica("r1", func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&lines, nil)) })
		r.leads()
		rep := r.report("registry")
		require.Equal(t, Done, rep.Outcome)
		require.Equal(t, 700, rep.Evicted, "two batches")
		require.Equal(t, 1, strings.Count(lines.String(), "key="+f.Devices("dead")), "told once")
		require.Empty(t, rep.Spared)
		require.Zero(t, f.left("dead"))
		require.Zero(t, r.Accounts())
		require.Equal(t, map[SkipReason]int{SkipUnreadable: 1}, r.report("owners").Spared)
		require.Equal(t, "oops", f.Get(t.Context(), f.Devices("dead")).Val())
	})
}

type roundTrips struct{ n *atomic.Int64 }

func (h roundTrips) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h roundTrips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { h.n.Add(1); return next(ctx, cmd) }
}

func (h roundTrips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { h.n.Add(1); return next(ctx, cmds) }
}
