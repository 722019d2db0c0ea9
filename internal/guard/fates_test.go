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
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		s.do("SET", s.Devices("dead"), "x")
		a := s.judges(s.batch(1))
		require.Contains(s, a.Reason, "WRONGTYPE")
		a.Reason = ""
		require.Equal(s, guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1}, a)
		require.Equal(s, map[string]string{"c": "other", "d": "other"}, s.entries())
		require.Equal(s, "x", s.Get(ctx, s.Devices("dead")).Val(), "it is somebody's, and left alone")
		require.Equal(s, "2", s.HGet(ctx, s.Witness(), "evicted_total").Val())
	})
}

func (s *term) fate(b guard.Batch) guard.Fate {
	fate, err := s.guard.Fate(s.Context(), b)
	require.NoError(s, err)
	return fate
}

func TestFateIsSettledOnlyOnceTheLeaseIsGone(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		b, later := s.batch(1), s.batch(2)
		require.False(s, s.fate(b).Settled, "the script may yet land")

		s.Del(ctx, s.Lease())
		require.Equal(s, guard.Fate{Answer: guard.Answer{Verdict: guard.Fenced}, Settled: true}, s.fate(b))

		s.Set(ctx, s.Lease(), b.Token, time.Minute)
		s.judges(b)
		require.Equal(s, guard.Fate{
			Answer:  guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1, Repeated: true},
			Settled: true, // the record is final under any leader
		}, s.fate(b))
		require.Equal(s, guard.Fate{Answer: guard.Answer{Verdict: guard.Fenced}}, s.fate(later), "each its own")
	})
}

func TestWhatATrimmedLogDoesNotHaveMayHaveRun(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		ran, never := s.batch(1), s.batch(2)
		s.judges(ran)
		require.False(s, s.fate(ran).Trimmed)
		require.False(s, s.fate(never).Trimmed)
		s.must(s.XTrimMaxLen(ctx, s.Log(), 1)) // removes the term's opening
		require.Equal(s, guard.Done, s.fate(ran).Verdict)
		require.False(s, s.fate(never).Trimmed, "an older record of its term stands")
		s.must(s.XTrimMaxLen(ctx, s.Log(), 0))
		require.True(s, s.fate(ran).Trimmed)
		require.False(s, s.fate(never).Settled, "the lease still has its token")
		s.do("DEL", s.Log(), s.Lease())
		require.Equal(s, guard.Fate{
			Answer: guard.Answer{Verdict: guard.Fenced}, Settled: true, Trimmed: true,
		}, s.fate(ran))
	})
}

// Without a lease the transaction's first answer is redis.Nil, which is not a failure but hides
// later ones.
func TestAFateThatCannotBeReadIsNotKnown(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		for _, count := range []string{"many", "-1", "1000001"} {
			b := s.batch(uint64(s.XLen(ctx, s.Log()).Val()))
			require.NoError(s, s.XAdd(ctx, &redis.XAddArgs{
				Stream: s.Log(), ID: b.ID.String(), Values: []string{"count", count, "reowned", "0"},
			}).Err())
			fate, err := s.guard.Fate(ctx, b)
			require.ErrorContains(s, err, "log record")
			require.Zero(s, fate)
		}
		s.do("DEL", s.Lease(), s.Log())
		s.do("SET", s.Log(), "x")
		fate, err := s.guard.Fate(ctx, s.batch(1))
		require.ErrorContains(s, err, "WRONGTYPE")
		require.Zero(s, fate)
	})
}
