package guard_test

import (
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// patience allows for a busy machine.
const patience = 30 * time.Second

// aof makes a server lose nothing when it is killed.
var aof = []string{"--appendonly", "yes", "--appendfsync", "always"}

// alive gives the batch's owner a fresh heartbeat, and the leader a lease and heartbeat that Redis
// cannot evict.
func (s *term) alive() {
	ctx := s.Context()
	s.must(s.Persist(ctx, s.Lease()))
	s.must(s.Persist(ctx, s.Heartbeat("leader")))
	s.must(s.Set(ctx, s.Heartbeat("dead"), "1/1", ttl))
	s.tick()
}

// held sends the live owner's batch and requires that a hold keeps it.
func (s *term) held(reason string) {
	a := s.judges(s.batch(1))
	require.Equal(s, guard.Answer{Verdict: guard.Held, Reason: reason}, a)
	require.Equal(s, reason, s.HGet(s.Context(), s.Witness(), "reason").Val())
	s.untouched()
}

func TestAPromotedReplicaIsAnotherServer(t *testing.T) {
	t.Parallel()
	s, r, replica := newReplica(t)
	s.must(s.Del(t.Context(), s.Heartbeat("dead")))
	require.EqualValues(t, 1, s.Wait(t.Context(), 1, patience).Val())
	require.NoError(t, r.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	only := map[string]any{"connections": 0, "commands": 0, "refused": 0} // only the id differs
	require.NoError(t, r.HSet(t.Context(), s.Witness(), only).Err())
	replica.held("restarted")
}

// A master takes a new replication id for its first replica, and a replica has its master's, so the
// id does not identify a server.
func TestAReplicaThatTakesWritesIsAnotherServerThanItsMaster(t *testing.T) {
	t.Parallel()
	s, r, replica := newReplica(t)
	id := s.HGet(t.Context(), s.Witness(), "server").Val()
	replication := s.HGet(t.Context(), s.Witness(), "replication").Val()
	a := s.judges(s.batch(1))
	require.Equal(t, guard.Alive, a.Verdict, "no hold: the server has got a replica, no more")
	require.Equal(t, id, s.HGet(t.Context(), s.Witness(), "server").Val())
	shared := s.HGet(t.Context(), s.Witness(), "replication").Val()
	require.NotEqual(t, replication, shared)
	require.Equal(t, int64(1), s.Wait(t.Context(), 1, patience).Val())
	require.Equal(t, shared, r.HGet(t.Context(), s.Witness(), "replication").Val())
	require.NoError(t, r.ConfigSet(t.Context(), "replica-read-only", "no").Err())
	only := map[string]any{"connections": 0, "commands": 0, "refused": 0} // only the id differs
	require.NoError(t, r.HSet(t.Context(), s.Witness(), only).Err())
	replica.held("restarted")
}

// newReplica returns a term on a server, a client of that server's replica, and the same term on
// the replica.
func newReplica(t *testing.T) (*term, *redis.Client, *term) {
	srv, replica := redistest.Start(t), redistest.Start(t)
	s := newTerm(t, srv.Options(), "")
	s.alive()
	r := replica.Client()
	_, port, err := net.SplitHostPort(srv.Addr())
	require.NoError(t, err)
	require.NoError(t, r.Do(t.Context(), "REPLICAOF", "127.0.0.1", port).Err())
	require.Eventually(t, func() bool { return s.Wait(t.Context(), 1, time.Second).Val() == 1 }, patience, 10*time.Millisecond)
	other := *s
	other.Client = redis.NewClient(lease.Options(replica.Options()))
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	other.guard = guard.New(other.Client, other.Client, s.Layout, timing, "leader")
	return s, r, &other
}

// Two replicas tick, one with quick settings. Each tick is a hold. Without the other's ticks the
// quick one's own GRACE of 5 s is enough for it, but not for owners whose TTL is longer.
func TestAFleetThatDisagreesIsHeldAndItsOwnersByTheirOwnGrace(t *testing.T) {
	inWorlds(t, func(s *term) {
		quick := guard.New(s.Client, s.Client, s.Layout, guard.Timing{Interval: time.Second, TTL: 3 * time.Second}, "leader")
		asks := func(n uint64) guard.Answer {
			a, err := quick.Do(s.Context(), s.batch(n))
			require.NoError(s, err)
			return a
		}
		require.Equal(s, guard.Answer{Verdict: guard.Held, Reason: "settings"}, asks(1))
		s.witness("since", 6*time.Second)
		require.Equal(s, guard.Answer{Verdict: guard.Wait, Reason: "held"}, asks(2))
		require.Equal(s, "settings", s.tick().Reason)
		require.Equal(s, guard.Answer{Verdict: guard.Held, Reason: "settings"}, asks(3))
		s.untouched()
		s.witness("since", grace)
		require.Equal(s, guard.Done, asks(4).Verdict)
	})
}

// Owners check all their claims after a hold in which entries may be lost, even if another hold
// followed soon.
func TestHoldsThatMayLoseEntriesAreRemembered(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		lost := func() string { return s.HGet(ctx, s.Witness(), "lost").Val() }
		require.NotEmpty(s, lost(), "the first tick is a gap")

		for reason, c := range map[string]struct {
			cause func()
			loses bool
		}{
			"gap":        {func() { s.witness("last", gap+time.Second) }, true},
			"settings":   {func() { s.HSet(ctx, s.Witness(), "gap", "1000") }, false},
			"restarted":  {func() { s.HSet(ctx, s.Witness(), "connections", 1<<40) }, true},
			"self_check": {func() { s.Del(ctx, s.Heartbeat("leader")) }, true},
		} {
			s.must(s.Set(ctx, s.Heartbeat("leader"), "1/1", time.Minute))
			s.tick()
			s.witness("since", grace)
			s.HSet(ctx, s.Witness(), "lost", "before")
			c.cause()
			s.held(reason)
			require.Equal(s, c.loses, lost() != "before", reason)
		}
	})
}

func TestTheRecordOfTheWitnessIsReadAsTicksHaveWrittenIt(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		ctx, layout := t.Context(), guard.Layout{Prefix: w.Prefix}
		r, err := guard.ReadWitness(ctx, w.Client, layout)
		require.NoError(t, err)
		require.Zero(t, r)
		timing := guard.Timing{Interval: time.Second, TTL: 9 * time.Second}
		said, err := guard.New(w.Client, w.Client, layout, timing, "one").Tick(ctx)
		require.NoError(t, err)
		r, err = guard.ReadWitness(ctx, w.Client, layout)
		require.NoError(t, err)
		require.Equal(t, guard.Recorded{
			Since: said.Since, LastTick: said.Now, LastHold: said.LastHold, Reason: "gap",
			Gap: timing.Gap(), Grace: timing.Grace(),
		}, r)
		require.NoError(t, w.Client.HSet(ctx, layout.Witness(), "since", "soon", "gap", "-1", "evicted_total",
			"7").Err())
		r, err = guard.ReadWitness(ctx, w.Client, layout)
		require.NoError(t, err)
		require.True(t, r.Since.IsZero() && r.Gap == 0 && r.Evicted == 7)
		require.NoError(t, w.Client.Set(ctx, layout.Witness(), "x", 0).Err())
		_, err = guard.ReadWitness(ctx, w.Client, layout)
		require.ErrorContains(t, err, "WRONGTYPE")
	})
}
