package guard_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// The index only helps to find entries. A key of another type in its place must not protect those
// of the dead.
func TestGuardEvictsAlsoWhereTheIndexIsNoSet(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		ctx := t.Context()
		s.must(s.Set(ctx, s.Devices("dead"), "x", 0))
		a := s.judges(s.batch(1))
		require.Contains(t, a.Reason, "WRONGTYPE")
		a.Reason = ""
		require.Equal(t, guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1}, a)
		require.Equal(t, map[string]string{"c": "other", "d": "other"}, s.entries())
		require.Equal(t, "x", s.Get(ctx, s.Devices("dead")).Val(), "it is somebody's, and left alone")
		require.Equal(t, "2", s.HGet(ctx, s.Witness(), "evicted_total").Val())
	})
}

func (s *term) fate(b guard.Batch) guard.Fate {
	fate, err := s.guard.Fate(s.t.Context(), b)
	require.NoError(s.t, err)
	return fate
}

func TestFateIsSettledOnlyOnceTheLeaseIsGone(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		ctx := t.Context()
		b, later := s.batch(1), s.batch(2)
		require.False(t, s.fate(b).Settled, "the script may yet land")

		s.Del(ctx, s.Lease())
		require.Equal(t, guard.Fate{Answer: guard.Answer{Verdict: guard.Fenced}, Settled: true}, s.fate(b))

		s.Set(ctx, s.Lease(), b.Token, time.Minute)
		s.judges(b)
		require.Equal(t, guard.Fate{
			Answer:  guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1, Repeated: true},
			Settled: true, // the record is final under any leader
		}, s.fate(b))
		require.Equal(t, guard.Fate{Answer: guard.Answer{Verdict: guard.Fenced}}, s.fate(later), "each its own")
	})
}

func TestWhatATrimmedLogDoesNotHaveMayHaveRun(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		ctx := t.Context()
		ran, never := s.batch(1), s.batch(2)
		s.judges(ran)
		require.False(t, s.fate(ran).Trimmed)
		require.False(t, s.fate(never).Trimmed)
		s.must(s.XTrimMaxLen(ctx, s.Log(), 1)) // removes the term's opening
		require.Equal(t, guard.Done, s.fate(ran).Verdict)
		require.False(t, s.fate(never).Trimmed, "an older record of its term stands")
		s.must(s.XTrimMaxLen(ctx, s.Log(), 0))
		require.True(t, s.fate(ran).Trimmed)
		require.False(t, s.fate(never).Settled, "the lease still has its token")
		s.must(s.Del(ctx, s.Log(), s.Lease()))
		require.Equal(t, guard.Fate{
			Answer: guard.Answer{Verdict: guard.Fenced}, Settled: true, Trimmed: true,
		}, s.fate(ran))
	})
}

// Without a lease the transaction's first answer is redis.Nil, which is not a failure but hides
// later ones.
func TestAFateThatCannotBeReadIsNotKnown(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		ctx := t.Context()
		for _, count := range []string{"many", "-1", "1000001"} {
			b := s.batch(uint64(s.XLen(ctx, s.Log()).Val()))
			require.NoError(t, s.XAdd(ctx, &redis.XAddArgs{
				Stream: s.Log(), ID: b.ID.String(), Values: []string{"count", count, "reowned", "0"},
			}).Err())
			fate, err := s.guard.Fate(ctx, b)
			require.ErrorContains(t, err, "log record")
			require.Zero(t, fate)
		}
		s.must(s.Del(ctx, s.Lease(), s.Log()))
		s.must(s.Set(ctx, s.Log(), "x", 0))
		fate, err := s.guard.Fate(ctx, s.batch(1))
		require.ErrorContains(t, err, "WRONGTYPE")
		require.Zero(t, fate)
	})
}
