package guard_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

var (
	timing = guard.Timing{Interval: 30 * time.Second, TTL: 90 * time.Second}
	gap    = timing.Gap()
	grace  = timing.Grace()
	ttl    = timing.TTL
)

// term is a leader in mid-term on a server that has been observed for long enough, with a dead
// owner, "dead", that left three entries, one of them taken over by another instance.
type term struct {
	*redis.Client
	guard.Layout
	*testing.T
	guard *guard.Guard
	lease guard.Lease
	real  bool // not miniredis
}

// inWorlds runs a test in parallel, in a term of its own on each kind of server.
func inWorlds(t *testing.T, test func(s *term)) {
	t.Helper()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s := newTerm(t, w.Options, w.Prefix)
		s.real = w.Real
		test(s)
	})
}

// onServer returns a term on a server of the test's own.
func onServer(t *testing.T) *term {
	t.Parallel()
	return newTerm(t, redistest.Start(t).Options(), "")
}

func newTerm(t *testing.T, o *redis.Options, prefix string) *term {
	ctx := t.Context()
	c := redis.NewClient(lease.Options(o))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	l := guard.Layout{Prefix: prefix}
	s := &term{
		T: t, Client: c, Layout: l, lease: guard.Lease{Token: "leader/1", Epoch: 100},
		guard: guard.New(c, c, l, timing, "leader"),
	}
	require.NoError(t, c.Set(ctx, l.Lease(), s.lease.Token, time.Minute).Err())
	require.NoError(t, c.Set(ctx, l.Heartbeat("leader"), "1/1", time.Minute).Err())
	s.tick()
	s.witness("since", grace)
	s.open()
	s.seed()
	return s
}

func (s *term) do(args ...any) { s.Helper(); s.must(s.Client.Do(s.Context(), args...)) }

func (s *term) must(cmd redis.Cmder) {
	s.Helper()
	require.NoError(s, cmd.Err())
}

// poor returns the guard of an instance whose user lacks only these rights.
func (s *term) poor(instance string, rules ...any) *guard.Guard {
	user := []any{"ACL", "SETUSER", "poor", "reset", "on", ">p", "~*", "&*", "+@all"}
	s.must(s.Do(s.Context(), append(user, rules...)...))
	o := *s.Options()
	o.Username, o.Password = "poor", "p"
	c := redis.NewClient(lease.Options(&o))
	s.Cleanup(func() { require.NoError(s, c.Close()) })
	return guard.New(c, c, s.Layout, timing, instance)
}

func (s *term) open() { s.Helper(); s.opens(guard.Done, s.lease) }

// opens opens a term, with this answer.
func (s *term) opens(want guard.Verdict, l guard.Lease, newest ...uint64) {
	s.Helper()
	v, is, err := s.guard.Open(s.Context(), l)
	require.NoError(s, err)
	require.Equal(s, want, v)
	if newest != nil {
		require.Equal(s, newest[0], is)
	}
}

// forgets forgets the dead owner, with this answer.
func (s *term) forgets(want guard.Verdict, swept int, unless ...string) {
	s.Helper()
	v, err := s.guard.Forget(s.Context(), s.lease, "dead", swept, unless...)
	require.NoError(s, err)
	require.Equal(s, want, v)
}

func (s *term) seed() {
	s.entriesAgain()
	s.do("SADD", s.Devices("dead"), "a", "b", "c", "gone")
	s.do("SADD", s.Roster(), "dead", "other")
	s.record("dead", doubt.Holds, grace*2)
}

func (s *term) entriesAgain() {
	s.do("HSET", s.Registry(), "a", "dead", "b", "dead", "c", "other", "d", "other")
}

// record gives an owner a record that is so old.
func (s *term) record(id string, state doubt.State, ago time.Duration) doubt.Record {
	now, err := s.Time(s.Context()).Result()
	require.NoError(s, err)
	own := doubt.Own{Interval: timing.Interval.Milliseconds(), TTL: ttl.Milliseconds()}
	r := doubt.Record{Last: now.Add(-ago).UnixMilli(), TTL: own.TTL, Due: own.Due(), Born: 1, State: state}
	s.do("HSET", s.Beats(), id, r.String())
	return r
}

// witness sets one of the witness' times to ago before the server's now.
func (s *term) witness(field string, ago time.Duration) {
	now, err := s.Time(s.Context()).Result()
	require.NoError(s, err)
	s.do("HSET", s.Witness(), field, now.Add(-ago).UnixMilli())
}

// batch returns a batch of the dead owner, with the evidence of this moment.
func (s *term) batch(n uint64) guard.Batch {
	ctx := context.Background()
	at, record := s.Time(ctx).Val().UnixMilli(), s.HGet(ctx, s.Beats(), "dead").Val()
	return guard.Batch{
		Evidence: guard.Evidence{Record: record, ReadAt: at},
		ID:       guard.BatchID{Epoch: s.lease.Epoch, N: n}, Token: s.lease.Token, Sweep: "registry", Owner: "dead",
		Body: guard.EvictEntries, Keys: guard.EntryKeys(s.Layout, "dead"), Items: []string{"a", "b", "c", "gone"},
	}
}

func (s *term) entries() map[string]string {
	m, err := s.HGetAll(s.Context(), s.Registry()).Result()
	require.NoError(s, err)
	return m
}

// untouched requires that nothing was deleted, recorded or counted.
func (s *term) untouched() {
	require.Equal(s, map[string]string{"a": "dead", "b": "dead", "c": "other", "d": "other"}, s.entries())
	require.EqualValues(s, 4, s.SCard(s.Context(), s.Devices("dead")).Val())
	records, err := s.XRange(s.Context(), s.Log(), "100-1", "+").Result()
	require.NoError(s, err)
	require.Empty(s, records)
	total, _ := s.HGet(s.Context(), s.Witness(), "evicted_total").Result()
	require.Empty(s, total)
}

func TestGuardEvictsExactlyWhatStillNamesTheDeadOwner(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()

		a := s.judges(s.batch(1))
		require.Equal(s, guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1}, a)
		require.Equal(s, map[string]string{"c": "other", "d": "other"}, s.entries())
		require.Zero(s, s.SCard(ctx, s.Devices("dead")).Val())

		records, err := s.XRange(ctx, s.Log(), "-", "+").Result()
		require.NoError(s, err)
		require.Len(s, records, 2)
		require.Equal(s, "100-0", records[0].ID)
		require.Equal(s, map[string]any{"leader": "leader", "term": "leader/1"}, records[0].Values)
		tick := s.tick()
		at, err := strconv.ParseInt(fmt.Sprint(records[1].Values["at"]), 10, 64)
		require.NoError(s, err)
		require.WithinDuration(s, tick.Now, time.UnixMilli(at), time.Minute)
		delete(records[1].Values, "at")
		require.Equal(s, "100-1", records[1].ID)
		require.Equal(s, map[string]any{
			"leader": "leader", "owner": "dead", "sweep": "registry", "count": "2", "reowned": "1", "imeis": `["a","b"]`,
		}, records[1].Values)

		require.EqualValues(s, 2, tick.Evicted)
		require.EqualValues(s, 2, tick.Instances)

		s.forgets(guard.Done, 0)
		require.Equal(s, []string{"other"}, s.SMembers(ctx, s.Roster()).Val())
		require.True(s, s.HExists(ctx, s.Beats(), "dead").Val(), "it stays a witness")
	})
}

// Scripts do not roll back, so missing rights must be found before the record.
func TestGuardRecordsNothingThatItsUserMayNotDelete(t *testing.T) {
	s := onServer(t)
	ctx := s.Context()
	for _, forbidden := range []string{"hdel", "hincrby"} {
		poor := s.poor("leader", "-"+forbidden)
		for range 2 { // the second try must find nothing to repeat
			_, err := poor.Do(ctx, s.batch(1))
			require.ErrorContains(t, err, "NOPERM")
			require.ErrorContains(t, err, strings.ToUpper(forbidden))
			s.untouched()
		}
	}
	a := s.judges(s.batch(1))
	require.Equal(t, 2, a.Deleted, "a guard that may delete gets on with it")
}

func TestGuardCountsAnItemNamedTwiceOnce(t *testing.T) {
	inWorlds(t, func(s *term) {
		b := s.batch(1)
		b.Items = []string{"a", "a"}
		a := s.judges(b)
		require.Equal(s, 1, a.Deleted)
		records, err := s.XRange(s.Context(), s.Log(), "100-1", "100-1").Result()
		require.NoError(s, err)
		require.Equal(s, `["a"]`, records[0].Values["imeis"])
	})
}

func TestGuardAnswersABatchAskedAgainWithoutDoingItAgain(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		first, err := s.guard.Do(ctx, s.batch(1))
		require.NoError(s, err)

		s.seed() // the owner came back, registered again and fell silent again
		again, err := s.guard.Do(ctx, s.batch(1))
		require.NoError(s, err)
		first.Repeated = true
		require.Equal(s, first, again)
		require.Equal(s, "dead", s.entries()["a"])
		require.Equal(s, "2", s.HGet(ctx, s.Witness(), "evicted_total").Val())
	})
}

func TestGuardKeeps(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(s *term)
		verdict guard.Verdict
		reason  string
	}{
		"when the lease is gone": {func(s *term) { s.do("DEL", s.Lease()) }, guard.Fenced, ""},
		"when the lease is another term's of the same instance": {func(s *term) {
			s.do("SET", s.Lease(), "leader/2", "EX", 60)
		}, guard.Fenced, ""},
		"when the lease is of another type": {func(s *term) {
			s.do("DEL", s.Lease())
			s.do("SADD", s.Lease(), "leader/1")
		}, guard.Fenced, ""},
		"when a newer term has begun, though the lease came back": {func(s *term) {
			newer := s.lease
			newer.Epoch++
			s.opens(guard.Done, newer)
		}, guard.Fenced, ""},
		"when the owner's heartbeat exists": {func(s *term) {
			s.do("SET", s.Heartbeat("dead"), "1", "EX", 60)
		}, guard.Alive, ""},
		"while the witness is young": {func(s *term) {
			s.witness("since", grace-5*time.Second)
			s.do("HSET", s.Witness(), "reason", "of old")
		}, guard.Held, "of old"},
		"while the witness is young, whatever the leader sees of itself": {func(s *term) {
			s.witness("since", grace-5*time.Second)
			s.do("HSET", s.Witness(), "reason", "of old")
			s.do("DEL", s.Heartbeat("leader"))
		}, guard.Held, "of old"},
		"when nobody knows since when Redis is heard": {func(s *term) {
			s.do("HDEL", s.Witness(), "since")
		}, guard.Held, "gap"},
		"when nobody knows when Redis was heard last": {func(s *term) {
			s.do("HDEL", s.Witness(), "last")
		}, guard.Held, "gap"},
		"when Redis was not heard for longer than GAP": {func(s *term) {
			s.witness("last", gap+time.Second)
		}, guard.Held, "gap"},
		"when the last tick lies in the future": {func(s *term) {
			s.witness("last", -time.Minute)
		}, guard.Held, "gap"},
		"when the witness' beginning lies in the future": {func(s *term) {
			s.witness("since", -time.Minute)
		}, guard.Held, "gap"},
		"when the witness is lost": {func(s *term) {
			s.do("DEL", s.Witness())
		}, guard.Held, "gap"},
		"when the witness is of another type": {func(s *term) {
			s.do("SET", s.Witness(), "x")
		}, guard.Held, "gap"},
		"when the fleet disagrees on GAP": {func(s *term) {
			s.do("HSET", s.Witness(), "gap", "1000")
		}, guard.Held, "settings"},
		"when the fleet disagrees on GRACE": {func(s *term) {
			s.do("HSET", s.Witness(), "grace", "1000")
		}, guard.Held, "settings"},
		"when the leader cannot see its own heartbeat": {func(s *term) {
			s.do("DEL", s.Heartbeat("leader"))
		}, guard.Held, "self_check"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, func(s *term) {
				ctx := s.Context()
				c.arrange(s)
				a := s.judges(s.batch(1))
				require.Equal(s, guard.Answer{Verdict: c.verdict, Reason: c.reason}, a)
				require.Equal(s, "dead", s.entries()["a"])
				// a hold binds every leader, until GRACE has passed
				if s.Type(ctx, s.Witness()).Val() == "string" { // a tick sets it aside
					s.tick()
				}
				if c.reason != "" && c.reason != "of old" {
					require.Equal(s, c.reason, s.HGet(ctx, s.Witness(), "reason").Val())
					a = s.judges(s.batch(2))
					require.Equal(s, guard.Held, a.Verdict)
				}
			})
		})
	}
}

func TestGuardDeletesNothingWhileMemoryIsFull(t *testing.T) {
	s := onServer(t)
	s.must(s.ConfigSet(t.Context(), "maxmemory", "1"))
	_, err := s.guard.Do(t.Context(), s.batch(1))
	require.ErrorContains(t, err, "OOM")
	s.untouched()
	s.must(s.ConfigSet(t.Context(), "maxmemory", "0"))
	a := s.judges(s.batch(1))
	require.Equal(t, 2, a.Deleted, "the same batch, asked again")
}

func TestGuardTakesTheLargestBatchAndRefusesMore(t *testing.T) {
	inWorlds(t, func(s *term) {
		b := s.batch(1)
		b.Items = nil
		var pairs []any
		for i := range guard.MaxBatch {
			imei := fmt.Sprintf("%015d", i)
			b.Items = append(b.Items, imei)
			pairs = append(pairs, imei, "dead")
		}
		s.HSet(s.Context(), s.Registry(), pairs...)
		a := s.judges(b)
		require.Equal(s, guard.MaxBatch, a.Deleted)

		b.Items = append(b.Items, "one more")
		_, err := s.guard.Do(s.Context(), b)
		require.ErrorContains(s, err, "1001 items")
		b.Items = nil
		_, err = s.guard.Do(s.Context(), b)
		require.ErrorContains(s, err, "0 items")
	})
}

func TestOpenRefusesAnEpochNotAboveTheNewest(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		s.open() // its own, repeated after a lost reply

		s.Set(ctx, s.Lease(), "leader/2", time.Minute)
		s.opens(guard.Stale, guard.Lease{Token: "leader/2", Epoch: 100}, 100) // the same epoch in another term's hands
		s.opens(guard.Stale, guard.Lease{Token: "leader/2", Epoch: 99}, 100)
		s.opens(guard.Fenced, guard.Lease{Token: "leader/1", Epoch: 101})
	})
}

func TestForgetKeepsARosterEntryWithSomethingBehindIt(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		s.forgets(guard.Alive, 0, s.Devices("dead")) // its index is not empty
		s.Del(ctx, s.Devices("dead"))
		s.Set(ctx, s.Heartbeat("dead"), "1", time.Minute)
		s.forgets(guard.Alive, 0, s.Devices("dead")) // its heartbeat exists
		s.Del(ctx, s.Heartbeat("dead"), s.Lease())
		s.forgets(guard.Fenced, 0, s.Devices("dead"))
		require.True(s, s.SIsMember(ctx, s.Roster(), "dead").Val())
	})
}

func TestForgetTakesWhatWasSweptAlong(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		s.SAdd(ctx, s.Contenders(), "dead", "leader")
		s.forgets(guard.Alive, 3, s.Devices("dead")) // somebody has added a member since
		require.EqualValues(s, 4, s.SCard(ctx, s.Devices("dead")).Val())
		require.True(s, s.SIsMember(ctx, s.Roster(), "dead").Val())
		s.forgets(guard.Done, 4, s.Devices("dead"))
		require.Zero(s, s.Exists(ctx, s.Devices("dead")).Val())
		require.False(s, s.SIsMember(ctx, s.Roster(), "dead").Val())
		require.Equal(s, []string{"leader"}, s.SMembers(ctx, s.Contenders()).Val())

		s.Set(ctx, s.Devices("dead"), "no set", 0)
		s.forgets(guard.Alive, 4, s.Devices("dead"))
	})
}

func TestForgetKeepsWhatItsUserMayNotUnlink(t *testing.T) {
	s := onServer(t)
	ctx := s.Context()
	poor := s.poor("leader", "-unlink")
	v, err := poor.Forget(ctx, s.lease, "dead", 4, s.Devices("dead"))
	require.NoError(t, err)
	require.Equal(t, guard.Refused, v)
	require.EqualValues(t, 4, s.SCard(ctx, s.Devices("dead")).Val())
	require.True(t, s.SIsMember(ctx, s.Roster(), "dead").Val())

	s.Del(ctx, s.Devices("dead"))
	v, err = poor.Forget(ctx, s.lease, "dead", 4, s.Devices("dead"))
	require.NoError(t, err)
	require.Equal(t, guard.Done, v, "there is nothing to unlink")
}
