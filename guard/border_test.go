package guard_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// inTerm runs f in a term within a synctest bubble, where only explicit waits take time.
func inTerm(t *testing.T, f func(t *testing.T, s *term)) {
	synctest.Test(t, func(t *testing.T) {
		s := newTerm(t, redistest.Fake(t), "")
		require.NoError(t, s.Persist(t.Context(), s.Lease()).Err())
		require.NoError(t, s.Persist(t.Context(), s.Heartbeat("leader")).Err())
		f(t, s)
	})
}

func (s *term) tick(t *testing.T) guard.Witness {
	t.Helper()
	w, err := s.guard.Tick(t.Context())
	require.NoError(t, err)
	return w
}

func TestAGapIsMoreThanGAPAndTwoTicksAtOneInstantAreNone(t *testing.T) {
	t.Parallel()
	inTerm(t, func(t *testing.T, s *term) {
		since := s.tick(t).Since
		require.Equal(t, since, s.tick(t).Since, "at one instant")
		time.Sleep(gap)
		require.Equal(t, since, s.tick(t).Since, "GAP itself is none")
		time.Sleep(gap + time.Millisecond)
		w := s.tick(t)
		require.Equal(t, guard.Witness{
			Now: w.Now, Since: w.Now, HeldFor: grace, Reason: "gap", LastHold: w.Now, Instances: 2,
			ChecksOff: []string{guard.CheckRefused, "restarted"},
		}, w)
		require.Equal(t, time.Now().UnixMilli(), w.Now.UnixMilli())
	})
}

func TestABatchRunsAtTheEndOfTheGracePeriod(t *testing.T) {
	t.Parallel()
	inTerm(t, func(t *testing.T, s *term) {
		s.witness(t, "since", grace-time.Millisecond)
		a, err := s.guard.Do(t.Context(), s.batch(1))
		require.NoError(t, err)
		require.Equal(t, guard.Held, a.Verdict)
		require.Equal(t, time.Millisecond, s.tick(t).HeldFor)
		time.Sleep(time.Millisecond)
		w := s.tick(t)
		require.Zero(t, w.HeldFor)
		require.Equal(t, grace, w.Listening)
		a, err = s.guard.Do(t.Context(), s.batch(1))
		require.NoError(t, err)
		require.Equal(t, guard.Done, a.Verdict)
	})
}

func TestWhatTheWitnessDoesNotSayIsNoDisagreement(t *testing.T) {
	t.Parallel()
	inTerm(t, func(t *testing.T, s *term) {
		since := s.tick(t).Since
		for _, field := range []string{"gap", "grace", "largest"} {
			require.NoError(t, s.HDel(t.Context(), s.Witness(), field).Err())
			require.Equal(t, since, s.tick(t).Since, field)
			require.NotEmpty(t, s.HGet(t.Context(), s.Witness(), field).Val(), field)
		}
		require.False(t, s.HExists(t.Context(), s.Witness(), "disagreed").Val())
	})
}

func TestTheGraceOfAnyThatDisagreesCounts(t *testing.T) {
	t.Parallel()
	const two = 48 * time.Hour // not a setting: too long
	for name, c := range map[string]struct {
		field string
		value int64
		held  time.Duration
	}{
		"another's, larger":          {"grace", 200_000, 200 * time.Second},
		"another's, smaller":         {"grace", 5_000, grace},
		"an earlier one's":           {"largest", 200_000, 200 * time.Second},
		"the largest that there is":  {"largest", two.Milliseconds(), two},
		"a larger one than there is": {"largest", two.Milliseconds() + 1, grace},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTerm(t, func(t *testing.T, s *term) {
				require.NoError(t, s.HSet(t.Context(), s.Witness(), c.field, c.value).Err())
				if c.field == "largest" {
					s.witness(t, "disagreed", 0)
				}
				s.witness(t, "since", 0)
				require.Equal(t, c.held, s.tick(t).HeldFor)
			})
		})
	}
	inTerm(t, func(t *testing.T, s *term) { // settings never seen to disagree
		require.NoError(t, s.HSet(t.Context(), s.Witness(), "largest", 200_000).Err())
		s.witness(t, "last", time.Hour)
		require.Equal(t, grace, s.tick(t).HeldFor)
	})
}

func TestADisagreementIsRememberedForTenOfTheLargest(t *testing.T) {
	t.Parallel()
	for past, held := range map[time.Duration]time.Duration{0: grace, time.Millisecond: 5 * time.Second} {
		inTerm(t, func(t *testing.T, s *term) {
			quick := guard.New(s.Client, s.Client, s.Layout, guard.Timing{Interval: time.Second, TTL: 3 * time.Second}, "leader")
			_, err := quick.Tick(t.Context())
			require.NoError(t, err)
			s.witness(t, "disagreed", 10*grace+past)
			s.witness(t, "since", 10*grace+past)
			s.witness(t, "last", 0)
			w, err := quick.Tick(t.Context())
			require.NoError(t, err)
			require.Equal(t, max(0, held-10*grace-past), w.HeldFor)
			require.Equal(t, fmt.Sprint(held.Milliseconds()), s.HGet(t.Context(), s.Witness(), "largest").Val())
		})
	}
}

// A beat reports its owner's GRACE, without a tick.
func TestWhatABeatTellsOfItsSettings(t *testing.T) {
	t.Parallel()
	script := redis.NewScript(guard.SettingsLua + "tell_grace(KEYS[1], ARGV[1], 'now')")
	const most, more = "172800000", "172800001"
	for name, c := range map[string]struct {
		grace, largest string // in the witness; "": not set
		told           string
		want           map[string]string // nil: unchanged
	}{
		"nobody has listened yet":       {"", "", "92000", nil},
		"nobody's, and a largest":       {"", "95000", "92000", nil},
		"its own":                       {"92000", "92000", "92000", nil},
		"a smaller one":                 {"5000", "5000", "92000", map[string]string{"largest": "92000"}},
		"a larger one":                  {"92000", "92000", "5000", map[string]string{"largest": "92000"}},
		"a larger one, no largest":      {"92000", "", "5000", map[string]string{"largest": "92000"}},
		"a larger one was there before": {"5000", "95000", "92000", map[string]string{"largest": "95000"}},
		"the largest that there is":     {"5000", "5000", most, map[string]string{"largest": most}},
		"larger than there is":          {"5000", "5000", more, map[string]string{"largest": "5000"}},
		"larger ones than there are":    {more, more, "5000", map[string]string{"largest": "5000"}},
		"nothing that makes sense":      {more, "x", more + "0", map[string]string{"largest": "0"}},
		"no sense in another order":     {"x", more, more, map[string]string{"largest": "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redistest.Worlds(t, func(t *testing.T, w redistest.World) {
				t.Parallel()
				key := w.Prefix + strings.ReplaceAll(name, " ", "-")
				had := map[string]string{"last": "1"}
				for field, v := range map[string]string{"grace": c.grace, "largest": c.largest} {
					if v != "" {
						had[field] = v
					}
				}
				require.NoError(t, w.Client.HSet(t.Context(), key, had).Err())
				require.ErrorIs(t, script.Run(t.Context(), w.Client, []string{key}, c.told).Err(), redis.Nil)
				want := had
				if c.want != nil {
					want = maps.Clone(c.want) // both worlds run at once
					want["last"], want["grace"], want["disagreed"] = "1", "0", "now"
				}
				require.Equal(t, want, w.Client.HGetAll(t.Context(), key).Val())
			})
		})
	}
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		key := w.Prefix + "no hash"
		require.NoError(t, w.Client.Set(t.Context(), key, "x", 0).Err())
		require.ErrorIs(t, script.Run(t.Context(), w.Client, []string{key}, "92000").Err(), redis.Nil)
		require.Equal(t, "x", w.Client.Get(t.Context(), key).Val())
	})
}

func TestEachCounterThatFallsIsARestart(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s := newTerm(t, w.Options, w.Prefix)
		counters := []string{"connections", "commands"}
		if w.Real {
			counters = append(counters, "refused")
		}
		for _, counter := range counters {
			s.witness(t, "since", grace)
			require.NoError(t, s.HSet(t.Context(), s.Witness(), counter, 1<<40).Err())
			s.held(t, "restarted")
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
		kept := []string{"since", "last", "gap", "grace", "largest", "hold", "reason", "lost", "connections", "commands"}
		if w.Real {
			kept = append(kept, "server", "replication", "refused")
		}
		require.ElementsMatch(t, kept, c.HKeys(t.Context(), guard.Layout{Prefix: w.Prefix}.Witness()).Val())
	})
}

func TestTheTotalOfWhatWasEvictedAddsUp(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s := newTerm(t, w.Options, w.Prefix)
		for i, c := range []struct {
			had  string
			want uint64
		}{
			{"", 2}, {"2", 4}, {"0", 2}, {"many", 2}, {"-3", 2}, {"1e3", 2},
			{strings.Repeat("9", 15), 1_000_000_000_000_001}, {strings.Repeat("9", 16), 2},
		} {
			if c.had != "" {
				require.NoError(t, s.HSet(t.Context(), s.Witness(), "evicted_total", c.had).Err())
			}
			s.seed(t)
			_, err := s.guard.Do(t.Context(), s.batch(uint64(i+1)))
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(c.want), s.HGet(t.Context(), s.Witness(), "evicted_total").Val(), c.had)
		}
		s.HSet(t.Context(), s.Witness(), "evicted_total", "7")
		for range 3 {
			require.EqualValues(t, 7, s.tick(t).Evicted)
		}
	})
}

// Without an owner the script checks the leader's own heartbeat, which exists.
func TestABatchWithoutAnOwnerIsNotKeptByAHeartbeat(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s := newTerm(t, w.Options, w.Prefix)
		b := s.batch(1)
		b.Owner, b.Items = "", []string{"x"}
		b.Body = guard.NewBody(`local no = record(1, 0, 'things', { 'x' }) if no then return no end return answer('DONE', 1)`)
		a, err := s.guard.Do(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, guard.Answer{Verdict: guard.Done, Deleted: 1}, a)

		b = s.batch(2)
		b.Sweep = "" // an empty name, which still judges an owner
		require.NoError(t, s.Set(t.Context(), s.Heartbeat("dead"), "1", time.Minute).Err())
		a, err = s.guard.Do(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, guard.Alive, a.Verdict)
	})
}

// A command that this user may not run is an error, not a hold or verdict.
func TestWhatTheUserMayNotDoIsAnError(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, ctx := newTerm(t, srv.Options(), ""), t.Context()
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
		require.ErrorContains(t, do(s.poor(t, "leader", "-"+command)), "user", command)
		after := s.HGetAll(ctx, s.Witness()).Val()
		require.Equal(t, before["since"], after["since"], command)
		s.untouched(t)
	}
}

// A right may be limited to one key.
func TestAGuardThatMayDeleteWhereItDeletesDoes(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, ctx := newTerm(t, srv.Options(), ""), t.Context()
	for i, c := range []struct{ command, key string }{{"hincrby", s.Witness()}, {"hdel", s.Registry()}} {
		poor := s.poor(t, "leader", "-"+c.command, "(+"+c.command+" ~"+c.key+")")
		s.seed(t)
		a, err := poor.Do(ctx, s.batch(uint64(i+1)))
		require.NoError(t, err)
		require.Equal(t, 2, a.Deleted)
	}
}

// The server's id is read if its replication id has changed.
func TestAServerThatDoesNotSayWhichItIsIsNoOther(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s, ctx := newTerm(t, srv.Options(), ""), t.Context()
	poor := s.poor(t, "poor", "-info", "+info|stats", "+info|errorstats", "+info|replication")
	w, err := poor.Tick(ctx)
	require.NoError(t, err)
	require.Equal(t, "gap", w.Reason, "the replication id vouches for it")
	require.NoError(t, s.HSet(ctx, s.Witness(), "replication", "another").Err())
	w, err = poor.Tick(ctx)
	require.NoError(t, err)
	require.Equal(t, "gap", w.Reason)
	require.Equal(t, []string{"restarted"}, w.ChecksOff)
}

func TestABatchThatDeletesNothingIsRecordedAsAnEmptyList(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s := newTerm(t, w.Options, w.Prefix)
		b := s.batch(1)
		b.Items = []string{"c", "gone"}
		a, err := s.guard.Do(t.Context(), b)
		require.NoError(t, err)
		require.Equal(t, guard.Answer{Verdict: guard.Done, Reowned: 1}, a)
		records, err := s.XRange(t.Context(), s.Log(), "100-1", "100-1").Result()
		require.NoError(t, err)
		require.Equal(t, "[]", records[0].Values["imeis"])
		require.Equal(t, "0", records[0].Values["count"])
		require.Equal(t, "0", s.HGet(t.Context(), s.Witness(), "evicted_total").Val())
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
	inTerm(t, func(t *testing.T, s *term) {
		require.NoError(t, s.HDel(t.Context(), s.Witness(), "hold", "reason").Err())
		w := s.tick(t)
		require.True(t, w.LastHold.IsZero())
		require.Empty(t, w.Reason)
	})
}
