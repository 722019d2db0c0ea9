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
	t     *testing.T
	guard *guard.Guard
	lease guard.Lease
	real  bool // not miniredis
}

// inWorlds runs a test in parallel, in a term of its own on each kind of server.
func inWorlds(t *testing.T, test func(t *testing.T, s *term)) {
	t.Helper()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s := newTerm(t, w.Options, w.Prefix)
		s.real = w.Real
		test(t, s)
	})
}

func newTerm(t *testing.T, o *redis.Options, prefix string) *term {
	ctx := t.Context()
	c := redis.NewClient(lease.Options(o))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	l := guard.Layout{Prefix: prefix}
	s := &term{
		t: t, Client: c, Layout: l, lease: guard.Lease{Token: "leader/1", Epoch: 100},
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

func (s *term) must(cmd redis.Cmder) {
	s.t.Helper()
	require.NoError(s.t, cmd.Err())
}

// poor returns the guard of an instance whose user lacks only these rights.
func (s *term) poor(instance string, rules ...any) *guard.Guard {
	user := []any{"ACL", "SETUSER", "poor", "reset", "on", ">p", "~*", "&*", "+@all"}
	s.must(s.Do(s.t.Context(), append(user, rules...)...))
	o := *s.Options()
	o.Username, o.Password = "poor", "p"
	c := redis.NewClient(lease.Options(&o))
	s.t.Cleanup(func() { require.NoError(s.t, c.Close()) })
	return guard.New(c, c, s.Layout, timing, instance)
}

func (s *term) open() {
	v, _, err := s.guard.Open(s.t.Context(), s.lease)
	require.NoError(s.t, err)
	require.Equal(s.t, guard.Done, v)
}

func (s *term) seed() {
	ctx := s.t.Context()
	s.entriesAgain()
	s.must(s.SAdd(ctx, s.Devices("dead"), "a", "b", "c", "gone"))
	s.must(s.SAdd(ctx, s.Roster(), "dead", "other"))
	s.record("dead", doubt.Holds, grace*2)
}

func (s *term) entriesAgain() {
	s.must(s.HSet(s.t.Context(), s.Registry(), "a", "dead", "b", "dead", "c", "other", "d", "other"))
}

// record gives an owner a record that is so old.
func (s *term) record(id string, state doubt.State, ago time.Duration) doubt.Record {
	now, err := s.Time(s.t.Context()).Result()
	require.NoError(s.t, err)
	own := doubt.Own{Interval: timing.Interval.Milliseconds(), TTL: ttl.Milliseconds()}
	r := doubt.Record{Last: now.Add(-ago).UnixMilli(), TTL: own.TTL, Due: own.Due(), Born: 1, State: state}
	s.must(s.HSet(s.t.Context(), s.Beats(), id, r.String()))
	return r
}

// witness sets one of the witness' times to ago before the server's now.
func (s *term) witness(field string, ago time.Duration) {
	now, err := s.Time(s.t.Context()).Result()
	require.NoError(s.t, err)
	s.must(s.HSet(s.t.Context(), s.Witness(), field, now.Add(-ago).UnixMilli()))
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
	m, err := s.HGetAll(s.t.Context(), s.Registry()).Result()
	require.NoError(s.t, err)
	return m
}

// untouched requires that nothing was deleted, recorded or counted.
func (s *term) untouched() {
	require.Equal(s.t, map[string]string{"a": "dead", "b": "dead", "c": "other", "d": "other"}, s.entries())
	require.EqualValues(s.t, 4, s.SCard(s.t.Context(), s.Devices("dead")).Val())
	records, err := s.XRange(s.t.Context(), s.Log(), "100-1", "+").Result()
	require.NoError(s.t, err)
	require.Empty(s.t, records)
	total, _ := s.HGet(s.t.Context(), s.Witness(), "evicted_total").Result()
	require.Empty(s.t, total)
}

func TestGuardEvictsExactlyWhatStillNamesTheDeadOwner(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		ctx := t.Context()

		a := s.judges(s.batch(1))
		require.Equal(t, guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1}, a)
		require.Equal(t, map[string]string{"c": "other", "d": "other"}, s.entries())
		require.Zero(t, s.SCard(ctx, s.Devices("dead")).Val())

		records, err := s.XRange(ctx, s.Log(), "-", "+").Result()
		require.NoError(t, err)
		require.Len(t, records, 2)
		require.Equal(t, "100-0", records[0].ID)
		require.Equal(t, map[string]any{"leader": "leader", "term": "leader/1"}, records[0].Values)
		tick := s.tick()
		at, err := strconv.ParseInt(fmt.Sprint(records[1].Values["at"]), 10, 64)
		require.NoError(t, err)
		require.WithinDuration(t, tick.Now, time.UnixMilli(at), time.Minute)
		delete(records[1].Values, "at")
		require.Equal(t, "100-1", records[1].ID)
		require.Equal(t, map[string]any{
			"leader": "leader", "owner": "dead", "sweep": "registry", "count": "2", "reowned": "1", "imeis": `["a","b"]`,
		}, records[1].Values)

		require.EqualValues(t, 2, tick.Evicted)
		require.EqualValues(t, 2, tick.Instances)

		v, err := s.guard.Forget(ctx, s.lease, "dead", 0)
		require.NoError(t, err)
		require.Equal(t, guard.Done, v)
		require.Equal(t, []string{"other"}, s.SMembers(ctx, s.Roster()).Val())
		require.True(t, s.HExists(ctx, s.Beats(), "dead").Val(), "it stays a witness")
	})
}

// Scripts do not roll back, so missing rights must be found before the record.
func TestGuardRecordsNothingThatItsUserMayNotDelete(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, ctx := newTerm(t, srv.Options(), ""), t.Context()
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
	inWorlds(t, func(t *testing.T, s *term) {
		b := s.batch(1)
		b.Items = []string{"a", "a"}
		a := s.judges(b)
		require.Equal(t, 1, a.Deleted)
		records, err := s.XRange(t.Context(), s.Log(), "100-1", "100-1").Result()
		require.NoError(t, err)
		require.Equal(t, `["a"]`, records[0].Values["imeis"])
	})
}

func TestGuardAnswersABatchAskedAgainWithoutDoingItAgain(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		ctx := t.Context()
		first, err := s.guard.Do(ctx, s.batch(1))
		require.NoError(t, err)

		s.seed() // the owner came back, registered again and fell silent again
		again, err := s.guard.Do(ctx, s.batch(1))
		require.NoError(t, err)
		first.Repeated = true
		require.Equal(t, first, again)
		require.Equal(t, "dead", s.entries()["a"])
		require.Equal(t, "2", s.HGet(ctx, s.Witness(), "evicted_total").Val())
	})
}

func TestGuardKeeps(t *testing.T) {
	cases := []struct {
		name    string
		arrange func(ctx context.Context, s *term)
		verdict guard.Verdict
		reason  string
	}{
		{"when the lease is gone", func(ctx context.Context, s *term) { s.Del(ctx, s.Lease()) }, guard.Fenced, ""},
		{"when the lease is another term's of the same instance", func(ctx context.Context, s *term) {
			s.Set(ctx, s.Lease(), "leader/2", time.Minute)
		}, guard.Fenced, ""},
		{"when the lease is of another type", func(ctx context.Context, s *term) {
			s.Del(ctx, s.Lease())
			s.SAdd(ctx, s.Lease(), "leader/1")
		}, guard.Fenced, ""},
		{"when a newer term has begun, though the lease came back", func(ctx context.Context, s *term) {
			newer := s.lease
			newer.Epoch++
			v, _, err := s.guard.Open(ctx, newer)
			require.NoError(s.t, err)
			require.Equal(s.t, guard.Done, v)
		}, guard.Fenced, ""},
		{"when the owner's heartbeat exists", func(ctx context.Context, s *term) {
			s.Set(ctx, s.Heartbeat("dead"), "1", time.Minute)
		}, guard.Alive, ""},
		{"while the witness is young", func(ctx context.Context, s *term) {
			s.witness("since", grace-5*time.Second)
			s.HSet(ctx, s.Witness(), "reason", "of old")
		}, guard.Held, "of old"},
		{"while the witness is young, whatever the leader sees of itself", func(ctx context.Context, s *term) {
			s.witness("since", grace-5*time.Second)
			s.HSet(ctx, s.Witness(), "reason", "of old")
			s.Del(ctx, s.Heartbeat("leader"))
		}, guard.Held, "of old"},
		{"when nobody knows since when Redis is heard", func(ctx context.Context, s *term) { s.HDel(ctx, s.Witness(), "since") }, guard.Held, "gap"},
		{"when nobody knows when Redis was heard last", func(ctx context.Context, s *term) { s.HDel(ctx, s.Witness(), "last") }, guard.Held, "gap"},
		{"when Redis was not heard for longer than GAP", func(ctx context.Context, s *term) { s.witness("last", gap+time.Second) }, guard.Held, "gap"},
		{"when the last tick lies in the future", func(ctx context.Context, s *term) { s.witness("last", -time.Minute) }, guard.Held, "gap"},
		{"when the witness' beginning lies in the future", func(ctx context.Context, s *term) { s.witness("since", -time.Minute) }, guard.Held, "gap"},
		{"when the witness is lost", func(ctx context.Context, s *term) { s.Del(ctx, s.Witness()) }, guard.Held, "gap"},
		{"when the witness is of another type", func(ctx context.Context, s *term) {
			s.Set(ctx, s.Witness(), "x", 0)
		}, guard.Held, "gap"},
		{"when the fleet disagrees on GAP", func(ctx context.Context, s *term) { s.HSet(ctx, s.Witness(), "gap", "1000") }, guard.Held, "settings"},
		{"when the fleet disagrees on GRACE", func(ctx context.Context, s *term) { s.HSet(ctx, s.Witness(), "grace", "1000") }, guard.Held, "settings"},
		{"when the leader cannot see its own heartbeat", func(ctx context.Context, s *term) {
			s.Del(ctx, s.Heartbeat("leader"))
		}, guard.Held, "self_check"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inWorlds(t, func(t *testing.T, s *term) {
				ctx := t.Context()
				c.arrange(ctx, s)
				a := s.judges(s.batch(1))
				require.Equal(t, guard.Answer{Verdict: c.verdict, Reason: c.reason}, a)
				require.Equal(t, "dead", s.entries()["a"])
				// a hold binds every leader, until GRACE has passed
				if s.Type(ctx, s.Witness()).Val() == "string" { // a tick sets it aside
					s.tick()
				}
				if c.reason != "" && c.reason != "of old" {
					require.Equal(t, c.reason, s.HGet(ctx, s.Witness(), "reason").Val())
					a = s.judges(s.batch(2))
					require.Equal(t, guard.Held, a.Verdict)
				}
			})
		})
	}
}

func TestGuardDeletesNothingWhileMemoryIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newTerm(t, server.Options(), "")
	s.must(s.ConfigSet(t.Context(), "maxmemory", "1"))
	_, err := s.guard.Do(t.Context(), s.batch(1))
	require.ErrorContains(t, err, "OOM")
	s.untouched()
	s.must(s.ConfigSet(t.Context(), "maxmemory", "0"))
	a := s.judges(s.batch(1))
	require.Equal(t, 2, a.Deleted, "the same batch, asked again")
}

func TestGuardTakesTheLargestBatchAndRefusesMore(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		b := s.batch(1)
		b.Items = nil
		var pairs []any
		for i := range guard.MaxBatch {
			imei := fmt.Sprintf("%015d", i)
			b.Items = append(b.Items, imei)
			pairs = append(pairs, imei, "dead")
		}
		s.HSet(t.Context(), s.Registry(), pairs...)
		a := s.judges(b)
		require.Equal(t, guard.MaxBatch, a.Deleted)

		b.Items = append(b.Items, "one more")
		_, err := s.guard.Do(t.Context(), b)
		require.ErrorContains(t, err, "1001 items")
		b.Items = nil
		_, err = s.guard.Do(t.Context(), b)
		require.ErrorContains(t, err, "0 items")
	})
}

func TestOpenRefusesAnEpochNotAboveTheNewest(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		ctx := t.Context()
		s.open() // its own, repeated after a lost reply

		s.Set(ctx, s.Lease(), "leader/2", time.Minute)
		v, newest, err := s.guard.Open(ctx, guard.Lease{Token: "leader/2", Epoch: 100})
		require.NoError(t, err)
		require.Equal(t, guard.Stale, v, "the same epoch in another term's hands")
		require.EqualValues(t, 100, newest)
		v, newest, err = s.guard.Open(ctx, guard.Lease{Token: "leader/2", Epoch: 99})
		require.NoError(t, err)
		require.Equal(t, guard.Stale, v)
		require.EqualValues(t, 100, newest)
		v, _, err = s.guard.Open(ctx, guard.Lease{Token: "leader/1", Epoch: 101})
		require.NoError(t, err)
		require.Equal(t, guard.Fenced, v)
	})
}

func TestForgetKeepsARosterEntryWithSomethingBehindIt(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		ctx := t.Context()
		v, err := s.guard.Forget(ctx, s.lease, "dead", 0, s.Devices("dead"))
		require.NoError(t, err)
		require.Equal(t, guard.Alive, v, "its index is not empty")
		s.Del(ctx, s.Devices("dead"))
		s.Set(ctx, s.Heartbeat("dead"), "1", time.Minute)
		v, err = s.guard.Forget(ctx, s.lease, "dead", 0, s.Devices("dead"))
		require.NoError(t, err)
		require.Equal(t, guard.Alive, v, "its heartbeat exists")
		s.Del(ctx, s.Heartbeat("dead"), s.Lease())
		v, err = s.guard.Forget(ctx, s.lease, "dead", 0, s.Devices("dead"))
		require.NoError(t, err)
		require.Equal(t, guard.Fenced, v)
		require.True(t, s.SIsMember(ctx, s.Roster(), "dead").Val())
	})
}

func TestForgetTakesWhatWasSweptAlong(t *testing.T) {
	inWorlds(t, func(t *testing.T, s *term) {
		ctx := t.Context()
		forget := func(swept int) guard.Verdict {
			v, err := s.guard.Forget(ctx, s.lease, "dead", swept, s.Devices("dead"))
			require.NoError(t, err)
			return v
		}
		s.SAdd(ctx, s.Contenders(), "dead", "leader")
		require.Equal(t, guard.Alive, forget(3), "somebody has added a member since")
		require.EqualValues(t, 4, s.SCard(ctx, s.Devices("dead")).Val())
		require.True(t, s.SIsMember(ctx, s.Roster(), "dead").Val())
		require.Equal(t, guard.Done, forget(4))
		require.Zero(t, s.Exists(ctx, s.Devices("dead")).Val())
		require.False(t, s.SIsMember(ctx, s.Roster(), "dead").Val())
		require.Equal(t, []string{"leader"}, s.SMembers(ctx, s.Contenders()).Val())

		s.Set(ctx, s.Devices("dead"), "no set", 0)
		require.Equal(t, guard.Alive, forget(4))
	})
}

func TestForgetKeepsWhatItsUserMayNotUnlink(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, ctx := newTerm(t, srv.Options(), ""), t.Context()
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
