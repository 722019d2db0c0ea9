package guard_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// The index only helps to find entries. A key of another type in its place must not protect those
// of the dead.
func TestGuardEvictsAlsoWhereTheIndexIsNoSet(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		require.NoError(t, s.Set(ctx, s.Devices("dead"), "x", 0).Err())
		a, err := s.guard.Do(ctx, s.batch(1))
		require.NoError(t, err)
		require.Contains(t, a.Reason, "WRONGTYPE")
		a.Reason = ""
		require.Equal(t, guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1}, a)
		require.Equal(t, map[string]string{"c": "other", "d": "other"}, s.entries(t))
		require.Equal(t, "x", s.Get(ctx, s.Devices("dead")).Val(), "it is somebody's, and left alone")
		require.Equal(t, "2", s.HGet(ctx, s.Witness(), "evicted_total").Val())
	})
}

func (s *term) fate(t *testing.T, b guard.Batch) guard.Fate {
	fates, err := s.guard.Fates(t.Context(), []guard.Batch{b})
	require.NoError(t, err)
	require.Contains(t, fates, b.ID)
	return fates[b.ID]
}

func TestFateIsSettledOnlyOnceTheLeaseIsGone(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		b := s.batch(1)
		require.False(t, s.fate(t, b).Settled, "the script may yet land")

		s.Del(ctx, s.Lease())
		require.Equal(t, guard.Fate{Answer: guard.Answer{Verdict: guard.Fenced}, Settled: true}, s.fate(t, b))

		s.Set(ctx, s.Lease(), b.Token, time.Minute)
		_, err := s.guard.Do(ctx, b)
		require.NoError(t, err)
		require.Equal(t, guard.Fate{
			Answer:  guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1, Repeated: true},
			Settled: true, // the record is final under any leader
		}, s.fate(t, b))
	})
}

func TestFatesOfManyBatchesAreEachTheirOwn(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		none, err := s.guard.Fates(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, none)

		done, missing, former, odd := s.batch(1), s.batch(2), s.batch(3), s.batch(4)
		former.Token, former.ID.Epoch = "leader/0", 99
		_, err = s.guard.Do(ctx, done)
		require.NoError(t, err)
		require.NoError(t, s.XAdd(ctx, &redis.XAddArgs{Stream: s.Log(), ID: odd.ID.String(), Values: []string{"count", "many"}}).Err())

		fates, err := s.guard.Fates(ctx, []guard.Batch{done, missing, former, odd})
		require.ErrorContains(t, err, "fate of batch 100-4: log record")
		require.Len(t, fates, 3, "what cannot be read is not known, and the others are")
		require.Equal(t, guard.Done, fates[done.ID].Verdict)
		require.False(t, fates[missing.ID].Settled)
		require.True(t, fates[former.ID].Settled)
		require.Equal(t, guard.Fenced, fates[former.ID].Verdict)
	})
}

func TestWhatATrimmedLogDoesNotHaveMayHaveRun(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		ran, never := s.batch(1), s.batch(2)
		_, err := s.guard.Do(ctx, ran)
		require.NoError(t, err)
		require.False(t, s.fate(t, ran).Trimmed)
		require.False(t, s.fate(t, never).Trimmed)
		require.NoError(t, s.XTrimMaxLen(ctx, s.Log(), 1).Err()) // removes the term's opening
		require.Equal(t, guard.Done, s.fate(t, ran).Verdict)
		require.False(t, s.fate(t, never).Trimmed, "an older record of its term stands")
		require.NoError(t, s.XTrimMaxLen(ctx, s.Log(), 0).Err())
		require.True(t, s.fate(t, ran).Trimmed)
		require.True(t, s.fate(t, never).Trimmed)
		require.False(t, s.fate(t, never).Settled, "the lease still has its token")
		require.NoError(t, s.Del(ctx, s.Log(), s.Lease()).Err())
		require.Equal(t, guard.Fate{
			Answer: guard.Answer{Verdict: guard.Fenced}, Settled: true, Trimmed: true,
		}, s.fate(t, ran))
	})
}

// Without a lease the transaction's first answer is redis.Nil, which is not a failure but hides
// later ones.
func TestFatesThatCannotBeReadAreNotKnown(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		require.NoError(t, s.Del(ctx, s.Lease(), s.Log()).Err())
		require.NoError(t, s.Set(ctx, s.Log(), "x", 0).Err())
		fates, err := s.guard.Fates(ctx, []guard.Batch{s.batch(1)})
		require.ErrorContains(t, err, "WRONGTYPE")
		require.Empty(t, fates)

		o := lease.Options(w.Options)
		o.DB = 1 << 20 // no such database: the connection is refused, as with a wrong password
		c := redis.NewClient(o)
		defer c.Close()
		fates, err = guard.New(c, c, s.Layout, timing, "leader").Fates(ctx, []guard.Batch{s.batch(1)})
		if w.Real { // miniredis has databases of any number
			require.Error(t, err)
			require.Empty(t, fates)
		}
	})
}
