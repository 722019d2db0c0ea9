package guard_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// patience allows for a busy machine.
const patience = 30 * time.Second

// aof makes a server lose nothing when it is killed.
var aof = []string{"--appendonly", "yes", "--appendfsync", "always"}

// alive gives the batch's owner a fresh heartbeat, and the leader a lease and heartbeat that Redis
// cannot evict.
func (s *term) alive(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, s.Persist(ctx, s.Lease()).Err())
	require.NoError(t, s.Persist(ctx, s.Heartbeat("leader")).Err())
	require.NoError(t, s.Set(ctx, s.Heartbeat("dead"), "1/1", ttl).Err())
	_, err := s.guard.Tick(ctx)
	require.NoError(t, err)
}

// evict makes the server evict the live owner's heartbeat, as a full cache does.
func (s *term) evict(t *testing.T) {
	ctx := t.Context()
	require.NoError(t, s.ConfigSet(ctx, "maxmemory-policy", "volatile-ttl").Err())
	require.NoError(t, s.ConfigSet(ctx, "maxmemory", "1mb").Err())
	_ = s.Set(ctx, "filler", "x", 0).Err() // refused if the heartbeat was the only volatile key
	require.NoError(t, s.ConfigSet(ctx, "maxmemory", "0").Err())
	require.Zero(t, s.Exists(ctx, s.Heartbeat("dead")).Val(), "the heartbeat was not evicted")
}

// held sends the live owner's batch and requires that a hold keeps it.
func (s *term) held(t *testing.T, reason string) {
	a, err := s.guard.Do(t.Context(), s.batch(1))
	require.NoError(t, err)
	require.Equal(t, guard.Answer{Verdict: guard.Held, Reason: reason}, a)
	require.Equal(t, reason, s.HGet(t.Context(), s.Witness(), "reason").Val())
	s.untouched(t)
}

func TestAHeartbeatThatRedisEvictedCondemnsNobody(t *testing.T) {
	t.Parallel()
	s := newTerm(t, redistest.Start(t).Options(), "")
	s.alive(t)
	s.evict(t)
	s.held(t, "redis_evicting")
	s.witness(t, "since", grace)
	a, err := s.guard.Do(t.Context(), s.batch(1))
	require.NoError(t, err)
	require.Equal(t, guard.Done, a.Verdict, "the counter has not moved since")
}

func TestARestartWithinGAPDoesNotHideWhatWasEvictedBeforeIt(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t, aof...)
	s := newTerm(t, srv.Options(), "")
	s.alive(t)
	s.evict(t)
	srv.Restart()
	require.Eventually(t, func() bool { return s.Ping(t.Context()).Err() == nil }, patience, 10*time.Millisecond)
	s.held(t, "restarted")
}

func TestResetCountersDoNotHideWhatWasEvictedBefore(t *testing.T) {
	t.Parallel()
	s := newTerm(t, redistest.Start(t).Options(), "")
	s.alive(t)
	s.evict(t)
	require.NoError(t, s.ConfigResetStat(t.Context()).Err())
	s.held(t, "restarted")
}

func TestAPromotedReplicaIsAnotherServer(t *testing.T) {
	t.Parallel()
	s, r, replica := newReplica(t)
	s.evict(t)
	require.Eventually(t, func() bool {
		return r.Exists(t.Context(), s.Witness()).Val() == 1 && r.Exists(t.Context(), s.Heartbeat("dead")).Val() == 0 &&
			s.Wait(t.Context(), 1, time.Second).Val() == 1
	}, patience, 10*time.Millisecond)
	require.NoError(t, r.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
	only := map[string]any{"connections": 0, "commands": 0, "evicted_keys": 0} // only the id differs
	require.NoError(t, r.HSet(t.Context(), s.Witness(), only).Err())
	replica.held(t, "restarted")
}

// A master takes a new replication id for its first replica, and a replica has its master's, so the
// id does not identify a server.
func TestAReplicaThatTakesWritesIsAnotherServerThanItsMaster(t *testing.T) {
	t.Parallel()
	s, r, replica := newReplica(t)
	id := s.HGet(t.Context(), s.Witness(), "server").Val()
	replication := s.HGet(t.Context(), s.Witness(), "replication").Val()
	a, err := s.guard.Do(t.Context(), s.batch(1))
	require.NoError(t, err)
	require.Equal(t, guard.Alive, a.Verdict, "no hold: the server has got a replica, no more")
	require.Equal(t, id, s.HGet(t.Context(), s.Witness(), "server").Val())
	shared := s.HGet(t.Context(), s.Witness(), "replication").Val()
	require.NotEqual(t, replication, shared)
	require.Equal(t, int64(1), s.Wait(t.Context(), 1, patience).Val())
	require.Equal(t, shared, r.HGet(t.Context(), s.Witness(), "replication").Val())
	require.NoError(t, r.ConfigSet(t.Context(), "replica-read-only", "no").Err())
	only := map[string]any{"connections": 0, "commands": 0, "evicted_keys": 0} // only the id differs
	require.NoError(t, r.HSet(t.Context(), s.Witness(), only).Err())
	replica.held(t, "restarted")
}

// newReplica returns a term on a server, a client of that server's replica, and the same term on
// the replica.
func newReplica(t *testing.T) (*term, *redis.Client, *term) {
	srv, replica := redistest.Start(t), redistest.Start(t)
	s := newTerm(t, srv.Options(), "")
	s.alive(t)
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

func TestAContenderThatMayNotAskForCountersForgetsNone(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, ctx := newTerm(t, srv.Options(), ""), t.Context()
	poor := s.poor(t, "poor", "-info")
	s.alive(t)
	before := s.HMGet(ctx, s.Witness(), "server", "evicted_keys", "refused").Val()
	w, err := poor.Tick(ctx)
	require.NoError(t, err)
	require.Equal(t, "redis_evicting", w.Reason, "what cannot be read is in no order")
	require.Equal(t, grace, w.HeldFor)
	require.Equal(t, before, s.HMGet(ctx, s.Witness(), "server", "evicted_keys", "refused").Val())
	s.witness(t, "since", grace)
	s.evict(t)
	_, err = poor.Tick(ctx)
	require.NoError(t, err)
	s.witness(t, "since", grace)
	s.held(t, "redis_evicting")
}

func TestWhereNobodyMayAskForCountersTheChecksAreOff(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	admin, ctx := srv.Client(), t.Context()
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "poor", "on", ">p", "~*", "&*", "+@all", "-info").Err())
	o := srv.Options()
	o.Username, o.Password = "poor", "p"
	s := newTerm(t, o, "")
	w, err := s.guard.Tick(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"redis_evicting", "redis_refusing", "restarted"}, w.ChecksOff)
	a, err := s.guard.Do(ctx, s.batch(1))
	require.NoError(t, err)
	require.Equal(t, guard.Done, a.Verdict)
}

// turnsAway makes the server refuse clients, in each way that it counts. A client refused once is
// refused on every try.
var turnsAway = map[string]func(t *testing.T, s *term, addr string){
	"a connection, for want of room": func(t *testing.T, s *term, addr string) {
		require.NoError(t, s.ConfigSet(t.Context(), "maxclients", "1").Err())
		dials(t, addr, "max number of clients")
		require.NoError(t, s.ConfigSet(t.Context(), "maxclients", "1000").Err())
	},
	"a login": func(t *testing.T, _ *term, addr string) {
		c := redis.NewClient(&redis.Options{Addr: addr, Username: "nobody", Password: "p", MaxRetries: -1})
		require.ErrorContains(t, c.Ping(t.Context()).Err(), "WRONGPASS")
		require.NoError(t, c.Close())
	},
	"memory for a client": func(t *testing.T, s *term, addr string) {
		require.NoError(t, s.ConfigSet(t.Context(), "maxmemory-clients", "1mb").Err())
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		// It may be cut before everything is written.
		_, _ = fmt.Fprintf(conn, "*2\r\n$4\r\nECHO\r\n$3000000\r\n%s", strings.Repeat("x", 2_000_000))
		_, err = conn.Read(make([]byte, 1))
		require.Error(t, err)
		require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "it was not cut")
		require.NoError(t, conn.Close())
		require.NoError(t, s.ConfigSet(t.Context(), "maxmemory-clients", "0").Err())
	},
}

// dials requires that the server refuses a connection with these words.
func dials(t *testing.T, addr, words string) {
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	line, _ := bufio.NewReader(conn).ReadString('\n')
	require.Contains(t, line, words)
	require.NoError(t, conn.Close())
}

func TestWhileRedisTurnsClientsAwaySilenceCondemnsNobody(t *testing.T) {
	t.Parallel()
	for name, turnsAway := range turnsAway {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			s, ctx := newTerm(t, srv.Options(), ""), t.Context()
			s.alive(t)
			require.NoError(t, s.Del(ctx, s.Heartbeat("dead")).Err()) // it expired: its beats are refused
			for range 3 {
				turnsAway(t, s, srv.Addr())
				s.held(t, "redis_refusing")
				s.witness(t, "since", grace)
			}
			a, err := s.guard.Do(ctx, s.batch(1))
			require.NoError(t, err)
			require.Equal(t, guard.Done, a.Verdict, "nobody was refused since")
		})
	}
}

// All of these grow in a healthy fleet: exporters with few rights, slow subscribers, scripts.
func TestWhatAHealthyServerCountsIsNoHold(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, ctx := newTerm(t, srv.Options(), ""), t.Context()
	poor := s.poor(t, "poor", "-keys")
	_, err := poor.Tick(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Do(ctx, "ACL", "SETUSER", "exporter", "on", ">p", "~none", "-@all", "+ping", "+get").Err())
	c := redis.NewClient(&redis.Options{Addr: srv.Addr(), Username: "exporter", Password: "p", MaxRetries: -1})
	require.ErrorContains(t, c.Get(ctx, s.Registry()).Err(), "NOPERM")
	require.ErrorContains(t, c.Keys(ctx, "*").Err(), "NOPERM")
	require.NoError(t, c.Close())
	require.Error(t, s.HGet(ctx, s.Lease(), "x").Err(), "of another type")
	require.Error(t, s.EvalSha(ctx, "0", nil).Err())
	a, err := s.guard.Do(ctx, s.batch(1))
	require.NoError(t, err)
	require.Equal(t, guard.Done, a.Verdict)
}

func TestACountOfClientsTurnedAwayThatFellIsARestart(t *testing.T) {
	t.Parallel()
	s, ctx := newTerm(t, redistest.Start(t).Options(), ""), t.Context()
	require.NoError(t, s.HSet(ctx, s.Witness(), "refused", 7).Err())
	s.held(t, "restarted")
}

// An older version's witness lacks this count.
func TestTheFirstCountOfClientsTurnedAwayIsNoHold(t *testing.T) {
	t.Parallel()
	s, ctx := newTerm(t, redistest.Start(t).Options(), ""), t.Context()
	require.NoError(t, s.HDel(ctx, s.Witness(), "refused").Err())
	a, err := s.guard.Do(ctx, s.batch(1))
	require.NoError(t, err)
	require.Equal(t, guard.Done, a.Verdict)
}

// A replica with the usual settings ticks every few seconds and beats every 30 s. One with quick
// settings has a GRACE of 5 s.
func TestAFleetThatDisagreesWaitsForTheLargestGraceOfAll(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		quick := guard.New(s.Client, s.Client, s.Layout, guard.Timing{Interval: time.Second, TTL: 3 * time.Second}, "leader")
		held := func(n uint64, want time.Duration) {
			a, err := quick.Do(ctx, s.batch(n))
			require.NoError(t, err)
			require.Equal(t, guard.Answer{Verdict: guard.Held, Reason: "settings"}, a)
			tick, err := quick.Tick(ctx)
			require.NoError(t, err)
			require.InDelta(t, want.Seconds(), tick.HeldFor.Seconds(), 20)
		}
		held(1, grace)
		s.witness(t, "since", 6*time.Second) // the quick one's own GRACE is over
		s.witness(t, "disagreed", 6*time.Second)
		held(2, grace-6*time.Second)
		s.untouched(t)

		s.witness(t, "since", grace) // no other was seen for the largest GRACE
		s.witness(t, "disagreed", grace)
		_, err := quick.Tick(ctx)
		require.NoError(t, err)
		a, err := quick.Do(ctx, s.batch(3))
		require.NoError(t, err)
		require.Equal(t, guard.Done, a.Verdict)
	})
}

// It also counts for holds soon afterwards: the owner with the larger settings takes as long to
// beat again.
func TestTheLargestGraceIsRememberedForAWhile(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		quick := guard.New(s.Client, s.Client, s.Layout, guard.Timing{Interval: time.Second, TTL: 3 * time.Second}, "leader")
		for _, c := range []struct{ disagreed, since, want time.Duration }{
			{9 * grace, 9 * grace, grace},
			{100 * grace, grace, grace}, // a hold's own time, a clock jump, does not age the memory
			{11 * grace, 11 * grace, 5 * time.Second},
		} {
			_, err := quick.Tick(ctx)
			require.NoError(t, err)
			s.witness(t, "disagreed", c.disagreed)
			s.witness(t, "since", c.since)
			_, err = quick.Tick(ctx)
			require.NoError(t, err)
			s.witness(t, "last", time.Minute)
			tick, err := quick.Tick(ctx)
			require.NoError(t, err)
			require.Equal(t, "gap", tick.Reason)
			require.Equal(t, c.want, tick.HeldFor)
		}
	})
}

func TestSettingsThatMakeNoSenseHoldNobodyForEver(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		require.NoError(t, s.HSet(ctx, s.Witness(), "largest", "9e99", "disagreed", "9e99").Err())
		a, err := s.guard.Do(ctx, s.batch(1))
		require.NoError(t, err)
		require.Equal(t, guard.Done, a.Verdict)
	})
}

// Owners check all their claims after a hold in which entries may be lost, even if another hold
// followed soon.
func TestHoldsThatMayLoseEntriesAreRemembered(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s, ctx := newTerm(t, w.Options, w.Prefix), t.Context()
		lost := func() string { return s.HGet(ctx, s.Witness(), "lost").Val() }
		require.NotEmpty(t, lost(), "the first tick is a gap")

		for reason, c := range map[string]struct {
			cause func()
			loses bool
		}{
			"gap":        {func() { s.witness(t, "last", gap+time.Second) }, true},
			"settings":   {func() { s.HSet(ctx, s.Witness(), "gap", "1000") }, false},
			"restarted":  {func() { s.HSet(ctx, s.Witness(), "connections", 1<<40) }, true},
			"self_check": {func() { s.Del(ctx, s.Heartbeat("leader")) }, true},
		} {
			require.NoError(t, s.Set(ctx, s.Heartbeat("leader"), "1/1", time.Minute).Err())
			_, err := s.guard.Tick(ctx)
			require.NoError(t, err)
			s.witness(t, "since", grace)
			s.HSet(ctx, s.Witness(), "lost", "before")
			c.cause()
			s.held(t, reason)
			require.Equal(t, c.loses, lost() != "before", reason)
		}
		s.HSet(ctx, s.Witness(), "lost", "before")
		_, err := s.guard.Hold(ctx, s.lease, 0)
		require.NoError(t, err)
		require.Equal(t, "before", lost(), "a mass failure")
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
			Gap: timing.Gap(), Grace: timing.Grace(), Largest: timing.Grace(),
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
