package guard_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// inTerm runs f in a term within a synctest bubble, where only explicit waits take time.
func inTerm(t *testing.T, f func(s *term)) {
	synctest.Test(t, func(t *testing.T) {
		s := newTerm(t, redistest.Fake(t), "")
		s.must(s.Persist(t.Context(), s.Lease()))
		s.must(s.Persist(t.Context(), s.Heartbeat("leader")))
		f(s)
	})
}

func (s *term) tick() guard.Witness {
	s.Helper()
	w, err := s.guard.Tick(s.Context())
	require.NoError(s, err)
	return w
}

func TestAGapIsMoreThanGAPAndTwoTicksAtOneInstantAreNone(t *testing.T) {
	t.Parallel()
	inTerm(t, func(s *term) {
		since := s.tick().Since
		require.Equal(s, since, s.tick().Since, "at one instant")
		time.Sleep(gap)
		require.Equal(s, since, s.tick().Since, "GAP itself is none")
		time.Sleep(gap + time.Millisecond)
		w := s.tick()
		require.Equal(s, guard.Witness{
			Now: w.Now, Since: w.Now, HeldFor: grace, Reason: "gap", LastHold: w.Now, Instances: 2,
			ChecksOff: []string{guard.CheckRefused, "redis_evicting", "restarted"},
		}, w)
		require.Equal(s, time.Now().UnixMilli(), w.Now.UnixMilli())
	})
}

func TestABatchRunsAtTheEndOfTheGracePeriod(t *testing.T) {
	t.Parallel()
	inTerm(t, func(s *term) {
		s.witness("since", grace-time.Millisecond)
		a := s.judges(s.batch(1))
		require.Equal(s, guard.Held, a.Verdict)
		require.Equal(s, time.Millisecond, s.tick().HeldFor)
		time.Sleep(time.Millisecond)
		w := s.tick()
		require.Zero(s, w.HeldFor)
		require.Equal(s, grace, w.Listening)
		a = s.judges(s.batch(1))
		require.Equal(s, guard.Done, a.Verdict)
	})
}

func TestWhatTheWitnessDoesNotSayIsNoDisagreement(t *testing.T) {
	t.Parallel()
	inTerm(t, func(s *term) {
		since := s.tick().Since
		for _, field := range []string{"gap", "grace"} {
			s.do("HDEL", s.Witness(), field)
			require.Equal(s, since, s.tick().Since, field)
			require.NotEmpty(s, s.HGet(s.Context(), s.Witness(), field).Val(), field)
		}
	})
}

// A beat compares its owner's GRACE, without a tick.
func TestABeatOfOtherSettingsIsSeenByTheNextTick(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		script := redis.NewScript(guard.SettingsLua + "tell_grace(KEYS[1], ARGV[1], 'now')")
		beats := func(grace string) {
			require.ErrorIs(s, script.Run(ctx, s.Client, []string{s.Witness()}, grace).Err(), redis.Nil)
		}
		beats(fmt.Sprint(grace.Milliseconds()))
		require.Zero(s, s.tick().HeldFor)
		beats("5000")
		beats(fmt.Sprint(grace.Milliseconds())) // hides nothing
		w := s.tick()
		require.Equal(s, "settings", w.Reason)
		require.Equal(s, grace, w.HeldFor)
		s.do("DEL", s.Witness())
		beats("5000")
		require.Zero(s, s.Exists(ctx, s.Witness()).Val(), "nobody listens")
		s.do("SET", s.Witness(), "x")
		beats("5000")
		require.Equal(s, "x", s.Get(ctx, s.Witness()).Val())
	})
}

func TestEachCounterThatFallsIsARestart(t *testing.T) {
	inWorlds(t, func(s *term) {
		counters := []string{"connections", "commands"}
		if s.real {
			counters = append(counters, "refused")
		}
		for _, counter := range counters {
			s.witness("since", grace)
			s.do("HSET", s.Witness(), counter, 1<<40)
			s.held("restarted")
		}
	})
}

func TestTheFirstTickKnowsAlreadyWhichChecksAreOff(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		c := redis.NewClient(lease.Options(w.Options))
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		first, err := guard.New(c, c, guard.Layout{Prefix: w.Prefix}, timing, "leader").Tick(t.Context())
		require.NoError(t, err)
		require.Equal(t, w.Real, len(first.ChecksOff) == 0)
		require.Equal(t, first.Now, first.LastHold)
		kept := []string{"since", "last", "gap", "grace", "hold", "reason", "lost", "connections", "commands"}
		if w.Real {
			kept = append(kept, "server", "replication", "refused", "evicted_keys")
		}
		require.ElementsMatch(t, kept, c.HKeys(t.Context(), guard.Layout{Prefix: w.Prefix}.Witness()).Val())
	})
}

func TestTheTotalOfWhatWasEvictedAddsUp(t *testing.T) {
	inWorlds(t, func(s *term) {
		for i, c := range []struct {
			had  string
			want uint64
		}{
			{"", 2}, {"2", 4}, {"0", 2}, {"many", 2}, {"-3", 2}, {"1e3", 2},
			{strings.Repeat("9", 15), 1_000_000_000_000_001}, {strings.Repeat("9", 16), 2},
		} {
			if c.had != "" {
				s.do("HSET", s.Witness(), "evicted_total", c.had)
			}
			s.seed()
			s.judges(s.batch(uint64(i + 1)))
			require.Equal(s, fmt.Sprint(c.want), s.HGet(s.Context(), s.Witness(), "evicted_total").Val(), c.had)
		}
		s.HSet(s.Context(), s.Witness(), "evicted_total", "7")
		for range 3 {
			require.EqualValues(s, 7, s.tick().Evicted)
		}
	})
}

// Without an owner the script checks the leader's own heartbeat, which exists.
func TestABatchWithoutAnOwnerIsNotKeptByAHeartbeat(t *testing.T) {
	inWorlds(t, func(s *term) {
		b := s.batch(1)
		b.Owner, b.Items = "", []string{"x"}
		b.Body = guard.NewBody(`local no = record(1, 0, 'things', { 'x' }) if no then return no end return answer('DONE', 1)`)
		a := s.judges(b)
		require.Equal(s, guard.Answer{Verdict: guard.Done, Deleted: 1}, a)

		b = s.batch(2)
		b.Sweep = "" // an empty name, which still judges an owner
		s.must(s.Set(s.Context(), s.Heartbeat("dead"), "1", time.Minute))
		a = s.judges(b)
		require.Equal(s, guard.Alive, a.Verdict)
	})
}

// A command that this user may not run is an error, not a hold or verdict.
func TestWhatTheUserMayNotDoIsAnError(t *testing.T) {
	s := onServer(t)
	ctx := s.Context()
	before := s.HGetAll(ctx, s.Witness()).Val()
	for command, do := range map[string]func(g *guard.Guard) error{
		"hmget": func(g *guard.Guard) error { _, err := g.Tick(ctx); return err },
		"hset":  func(g *guard.Guard) error { _, err := g.Tick(ctx); return err },
		"xadd": func(g *guard.Guard) error {
			_, _, err := g.Open(ctx, guard.Lease{Token: s.lease.Token, Epoch: 101})
			return err
		},
		"exists": func(g *guard.Guard) error { _, err := g.Do(ctx, s.batch(1)); return err },
	} {
		require.ErrorContains(t, do(s.poor("leader", "-"+command)), "user", command)
		after := s.HGetAll(ctx, s.Witness()).Val()
		require.Equal(t, before["since"], after["since"], command)
		s.untouched()
	}
}

// A right may be limited to one key.
func TestAGuardThatMayDeleteWhereItDeletesDoes(t *testing.T) {
	s := onServer(t)
	ctx := s.Context()
	for i, c := range []struct{ command, key string }{{"hincrby", s.Witness()}, {"hdel", s.Registry()}} {
		poor := s.poor("leader", "-"+c.command, "(+"+c.command+" ~"+c.key+")")
		s.seed()
		a, err := poor.Do(ctx, s.batch(uint64(i+1)))
		require.NoError(t, err)
		require.Equal(t, 2, a.Deleted)
	}
}

// The server's id is read if its replication id has changed.
func TestAServerThatDoesNotSayWhichItIsIsNoOther(t *testing.T) {
	s := onServer(t)
	ctx := s.Context()
	poor := s.poor("poor", "-info", "+info|stats", "+info|errorstats", "+info|replication")
	w, err := poor.Tick(ctx)
	require.NoError(t, err)
	require.Equal(t, "gap", w.Reason, "the replication id vouches for it")
	s.do("HSET", s.Witness(), "replication", "another")
	w, err = poor.Tick(ctx)
	require.NoError(t, err)
	require.Equal(t, "gap", w.Reason)
	require.Equal(t, []string{"restarted"}, w.ChecksOff)
}

func TestABatchThatDeletesNothingIsRecordedAsAnEmptyList(t *testing.T) {
	inWorlds(t, func(s *term) {
		b := s.batch(1)
		b.Items = []string{"c", "gone"}
		a := s.judges(b)
		require.Equal(s, guard.Answer{Verdict: guard.Done, Reowned: 1}, a)
		records, err := s.XRange(s.Context(), s.Log(), "100-1", "100-1").Result()
		require.NoError(s, err)
		require.Equal(s, "[]", records[0].Values["imeis"])
		require.Equal(s, "0", records[0].Values["count"])
		require.Equal(s, "0", s.HGet(s.Context(), s.Witness(), "evicted_total").Val())
	})
}

func TestWhatFollowsFromTheTiming(t *testing.T) {
	t.Parallel()
	for of, want := range map[guard.Timing][2]time.Duration{
		{Interval: 30 * time.Second, TTL: 90 * time.Second}: {30 * time.Second, 92 * time.Second},
		{Interval: time.Second, TTL: 6 * time.Second}:       {2500 * time.Millisecond, 8 * time.Second},
	} {
		require.Equal(t, want, [2]time.Duration{of.Gap(), of.Grace()})
	}
}

func TestAWitnessWithoutAHoldHadNone(t *testing.T) {
	t.Parallel()
	inTerm(t, func(s *term) {
		s.do("HDEL", s.Witness(), "hold", "reason")
		w := s.tick()
		require.True(s, w.LastHold.IsZero())
		require.Empty(s, w.Reason)
	})
}
