package guard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// Whatever others write into the guard's keys, terms must not end for good, and it must not count
// as evidence.

const lastID = "18446744073709551615-18446744073709551615"

func TestALogThatTakesNoRecordIsSetAsideByTheNextTerm(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		for name, damage := range map[string]func(s *term) error{
			"the largest id": func(s *term) error {
				return s.XAdd(t.Context(), &redis.XAddArgs{Stream: s.Log(), ID: lastID, Values: []string{"a", "b"}}).Err()
			},
			"an id of years to come": func(s *term) error {
				id := time.Now().AddDate(2, 0, 0).UnixMicro()
				return s.XAdd(t.Context(), &redis.XAddArgs{
					Stream: s.Log(), ID: guard.BatchID{Epoch: uint64(id)}.String(), Values: []string{"a", "b"},
				}).Err()
			},
			"a list": func(s *term) error {
				if err := s.Del(t.Context(), s.Log()).Err(); err != nil {
					return err
				}
				return s.RPush(t.Context(), s.Log(), "x").Err()
			},
		} {
			s, ctx := newTerm(t, w.Options, w.Prefix+name), t.Context()
			require.NoError(t, damage(s), name)
			a := s.judges(s.batch(1))
			require.Equal(t, guard.Fenced, a.Verdict, name)
			require.Len(t, s.entries(), 4, name)

			next := guard.Lease{Token: "leader/2", Epoch: 101}
			s.must(s.Set(ctx, s.Lease(), next.Token, time.Minute))
			s.opens(guard.Fenced, s.lease) // only who holds the lease sets it aside
			for range 2 {                  // repeated after a lost reply
				s.opens(guard.Aside, next)
			}
			require.EqualValues(t, 1, s.Exists(ctx, s.LogAside(next.Epoch)).Val(), name)
			old := s.batch(2)
			a = s.judges(old)
			require.Equal(t, guard.Fenced, a.Verdict, "the lease is another's")
			old.ID.Epoch, old.Token = next.Epoch, next.Token
			a = s.judges(old)
			require.Equal(t, guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1}, a, name)
		}
	})
}

func TestAnEpochAheadOfTheClockStaysInTheLog(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		ahead := uint64(time.Now().AddDate(0, 6, 0).UnixMicro())
		require.NoError(s, s.XAdd(ctx, &redis.XAddArgs{
			Stream: s.Log(), ID: guard.BatchID{Epoch: ahead}.String(), Values: []string{"a", "b"},
		}).Err())
		s.must(s.Set(ctx, s.Lease(), "leader/2", time.Minute))
		s.opens(guard.Stale, guard.Lease{Token: "leader/2", Epoch: 101}, ahead)
	})
}

// To Lua some of these are numbers, and NaN compares as if it were long ago.
func TestATimeThatTheWitnessCannotHaveWrittenIsAHold(t *testing.T) {
	inWorlds(t, func(s *term) {
		n := uint64(0)
		for _, field := range []string{"since", "last"} {
			for _, value := range []string{"nan", "-nan", "inf", "-inf", "-1", "1e3", "0x10", " 1", "", "abc", strings.Repeat("9", 400)} {
				s.witness("since", grace)
				s.witness("last", 0)
				s.do("HSET", s.Witness(), field, value)
				n++
				a := s.judges(s.batch(n))
				require.Equal(s, guard.Answer{Verdict: guard.Held, Reason: "gap"}, a, "%s %q", field, value)
			}
		}
		require.Len(s, s.entries(), 4)
	})
}

func TestWhatATickOrATermFindsInItsPlaceIsKeptAndNothingIsOverwritten(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		for range 2 { // each has a name of its own
			s.do("DEL", s.Witness())
			s.do("RPUSH", s.Witness(), "x")
			tick := s.tick()
			require.Equal(s, "gap", tick.Reason)
			require.Positive(s, tick.HeldFor)
			require.Equal(s, "hash", s.Type(ctx, s.Witness()).Val())
		}
		require.Len(s, s.Keys(ctx, s.Witness()+":aside:*").Val(), 2)

		next := guard.Lease{Token: "leader/2", Epoch: 101}
		s.must(s.Set(ctx, s.Lease(), next.Token, time.Minute))
		s.do("DEL", s.Log())
		s.do("RPUSH", s.Log(), "x")
		s.do("SET", s.LogAside(next.Epoch), "somebody's")
		s.opens(guard.Stale, next, next.Epoch)
		next.Epoch++
		s.opens(guard.Aside, next)
		require.Equal(s, "somebody's", s.Get(ctx, s.LogAside(101)).Val())
		require.Equal(s, "list", s.Type(ctx, s.LogAside(102)).Val())
	})
}

// A client that bounds its replies would read none of these.
func TestAFieldThatIsTooLongForTheWitnessIsDeletedByATick(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		long := strings.Repeat("9", 1<<20)
		for _, field := range []string{
			"since", "last", "gap", "grace", "server", "connections", "refused_at", "evicted_total", "reason",
			"hold", "replication", "refused", "lost", "boot", "emptied",
		} {
			s, ctx := newTerm(t, w.Options, w.Prefix+field), t.Context()
			s.do("HSET", s.Witness(), field, long)
			r, err := guard.ReadWitness(ctx, s.Client, s.Layout)
			require.NoError(t, err)
			require.Less(t, len(r.Reason), 2000, field)
			tick := s.tick()
			require.Less(t, len(tick.Reason), 100, field)
			require.Less(t, len(s.HGet(ctx, s.Witness(), field).Val()), 100, field)
			if field == "server" || field == "connections" {
				continue
			}
			require.Len(t, s.entries(), 4)
		}
	})
}
