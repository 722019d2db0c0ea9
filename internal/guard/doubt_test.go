package guard_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// judges sends the batch of the dead owner.
func (s *term) judges(b guard.Batch) guard.Answer {
	s.Helper()
	a, err := s.guard.Do(s.Context(), b)
	require.NoError(s, err)
	return a
}

func TestTheScriptAndTheRuleComeToTheSameVerdict(t *testing.T) {
	inWorlds(t, func(s *term) {
		now := s.batch(0).ReadAt
		// Near the borders, but never on one: the clock runs.
		ago := func() int64 {
			borders := []int64{0, ttl.Milliseconds(), grace.Milliseconds(), ttl.Milliseconds() + grace.Milliseconds(), 10 * grace.Milliseconds()}
			return now - borders[rand.IntN(len(borders))] - rand.Int64N(5)*40_000 - 20_000
		}
		seen := map[doubt.Doubt]int{}
		for n := range uint64(400) {
			r := doubt.Record{
				Last: ago(), TTL: []int64{30_000, 90_000, 300_000}[rand.IntN(3)], Due: []int64{0, 38_000}[rand.IntN(2)],
				State: []doubt.State{doubt.Holds, doubt.Idle, doubt.Bye, doubt.Plain}[rand.IntN(4)],
			}
			since, refused := min(ago(), now-grace.Milliseconds()-20_000), ago()
			s.do("HSET", s.Witness(), "since", since, "refused_at", refused)
			s.do("HSET", s.Beats(), "dead", r.String())
			s.entriesAgain()
			a := s.judges(s.batch(n + 1))
			want := guard.Answer{Verdict: guard.Wait}
			verdict := r.Verdict(now, since, refused, false)
			switch verdict {
			case doubt.None:
				want = guard.Answer{Verdict: guard.Done, Deleted: 2, Reowned: 1}
			case doubt.Alive:
				want.Verdict = guard.Alive
			default:
				want.Reason = string(verdict)
			}
			require.Equal(s, want, a, "%s: since %d, refused %d, now %d", r, since, refused, now)
			seen[verdict]++
		}
		require.Len(s, seen, 4, "each verdict was met")
	})
}

func TestAnOwnerWaitsWhileItsRecordProvesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		arrange func(s *term, b *guard.Batch) error
		verdict guard.Verdict
		reason  string
	}{
		"it has none":        {func(s *term, b *guard.Batch) error { return s.HDel(t.Context(), s.Beats(), "dead").Err() }, guard.Wait, "unknown"},
		"nobody can read it": {func(s *term, b *guard.Batch) error { return s.HSet(t.Context(), s.Beats(), "dead", "1/x/h").Err() }, guard.Wait, "unknown"},
		"the hash is none": {func(s *term, b *guard.Batch) error {
			s.Del(t.Context(), s.Beats())
			return s.Set(t.Context(), s.Beats(), "x", 0).Err()
		}, guard.Wait, "unknown"},
		"the leader has read another": {func(s *term, b *guard.Batch) error { b.Record = "1/90000/38000/1/0/h"; return nil }, guard.Wait, "stale"},
		"it says goodbye by now": {func(s *term, b *guard.Batch) error {
			return s.HSet(t.Context(), s.Beats(), "dead", strings.Replace(b.Record, "/h", "/b", 1)).Err()
		}, guard.Wait, "stale"},
		"it is fresh": {func(s *term, b *guard.Batch) error {
			return s.HSet(t.Context(), s.Beats(), "dead", fmt.Sprintf("%d/90000/38000/1/0/h", b.ReadAt)).Err()
		}, guard.Alive, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inWorlds(t, func(s *term) {
				b := s.batch(1)
				require.NoError(s, c.arrange(s, &b))
				require.Equal(s, guard.Answer{Verdict: c.verdict, Reason: c.reason}, s.judges(b))
				s.untouched()
				require.Equal(s, "gap", s.HGet(s.Context(), s.Witness(), "reason").Val(), "the doubt holds nobody else")
			})
		})
	}
}

// Whether most others are off is the leader's to say, of a reading that is fresh.
func TestWithinAGraceOfTheFallAnOldReadingProvesNothing(t *testing.T) {
	inWorlds(t, func(s *term) {
		s.record("dead", doubt.Holds, ttl+grace/2)
		s.witness("since", time.Hour)
		for i, off := range []int64{-60_000, 60_000} {
			b := s.batch(uint64(i + 1))
			b.ReadAt += off
			require.Equal(s, guard.Answer{Verdict: guard.Wait, Reason: "stale"}, s.judges(b))
		}
		s.untouched()
		require.Equal(s, guard.Done, s.judges(s.batch(3)).Verdict)
		s.seed()
		s.record("dead", doubt.Holds, ttl+2*grace)
		b := s.batch(4)
		b.ReadAt -= 60_000
		require.Equal(s, guard.Done, s.judges(b).Verdict, "so long a silence needs nobody else")
	})
}

func TestAFormerPrimaryAnswersNothing(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		mine := s.record("leader", doubt.Holds, time.Minute)
		b := s.batch(1)
		b.Newest = mine.Last + 1
		before := s.HGetAll(ctx, s.Witness()).Val()
		_, err := s.guard.Do(ctx, b)
		require.True(s, guard.IsFormer(err), "%v", err)
		_, err = s.guard.Read(ctx, mine.Last+1)
		require.True(s, guard.IsFormer(err), "%v", err)
		s.untouched()
		require.Equal(s, before, s.HGetAll(ctx, s.Witness()).Val())

		b.Newest = mine.Last
		_, err = s.guard.Read(ctx, b.Newest)
		require.NoError(s, err)
		require.Equal(s, guard.Done, s.judges(b).Verdict)
		for _, nothing := range []func() error{
			func() error { return s.HDel(ctx, s.Beats(), "leader").Err() },
			func() error { return s.HSet(ctx, s.Beats(), "leader", "rubbish").Err() },
			func() error { return s.Del(ctx, s.Beats()).Err() },
			func() error { return s.Set(ctx, s.Beats(), "x", 0).Err() },
		} {
			require.NoError(s, nothing())
			_, err = s.guard.Read(ctx, mine.Last+1)
			require.False(s, guard.IsFormer(err), "a missing record proves nothing")
		}
	})
}

// The client dials anew, by name, and may find the present primary there.
func TestAClientDropsItsConnectionToAFormerPrimary(t *testing.T) {
	s := onServer(t)
	ctx := s.Context()
	mine := s.record("leader", doubt.Holds, time.Minute)
	before := s.ClientID(ctx).Val()
	require.Equal(t, before, s.ClientID(ctx).Val())
	_, err := s.guard.Read(ctx, mine.Last+1)
	require.True(t, guard.IsFormer(err))
	require.NotEqual(t, before, s.ClientID(ctx).Val())
}

func TestAReadingIsWholeHoweverManyThereAre(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		for _, n := range []int{3, 1500} {
			s, ctx := newTerm(t, w.Options, w.Prefix+fmt.Sprint(n)), t.Context()
			s.do("DEL", s.Beats(), s.Roster())
			pipe := s.Pipeline()
			for i := range n {
				pipe.HSet(ctx, s.Beats(), fmt.Sprint(i), fmt.Sprintf("%d/90000/38000/1/0/h", i+1))
				pipe.SAdd(ctx, s.Roster(), fmt.Sprint(i))
			}
			_, err := pipe.Exec(ctx)
			require.NoError(t, err)
			s.do("HSET", s.Witness(), "refused_at", 7)
			r, err := s.guard.Read(ctx, 0)
			require.NoError(t, err)
			require.Len(t, r.Records, n)
			require.Equal(t, "3/90000/38000/1/0/h", r.Records["2"])
			require.Len(t, r.Roster, n)
			require.InDelta(t, time.Now().UnixMilli(), r.Now, 60_000)
			require.Equal(t, s.HGet(ctx, s.Witness(), "since").Val(), fmt.Sprint(r.Since))
			require.EqualValues(t, 7, r.RefusedAt)
		}
	})
}

func TestWhatIsNotInAReadingIsSaidAndCountsAsEmpty(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		s.do("HSET", s.Witness(), "since", "nan", "refused_at", "-1")
		large := strings.Repeat("9", 1<<20)
		s.do("HSET", s.Beats(), "dead", large, large, "1")
		s.do("SADD", s.Roster(), "stays", large)
		r, err := s.guard.Read(ctx, 0)
		require.NoError(s, err)
		require.Zero(s, r.Since)
		require.Zero(s, r.RefusedAt)
		require.ElementsMatch(s, []string{"dead", "other", "stays"}, r.Roster)
		require.Empty(s, r.Records)
		require.Zero(s, s.Exists(ctx, s.Beats()).Val(), "it would keep Redis busy at each reading")
		s.Del(ctx, s.Beats(), s.Roster(), s.Witness())
		for _, key := range []string{s.Beats(), s.Roster(), s.Witness()} {
			s.do("SET", key, "x")
		}
		r, err = s.guard.Read(ctx, 0)
		require.NoError(s, err)
		require.ErrorContains(s, r.RecordsErr, "WRONGTYPE")
		require.ErrorContains(s, r.RosterErr, "WRONGTYPE")
		require.Empty(s, r.Records)
		require.Empty(s, r.Roster)

		v, _, err := s.guard.Write(ctx, s.lease, []guard.Change{{Owner: "plain", Is: "1/2/0/1/0/p"}})
		require.NoError(s, err)
		require.Equal(s, guard.Done, v)
		require.Equal(s, map[string]string{"plain": "1/2/0/1/0/p"}, s.HGetAll(ctx, s.Beats()).Val())
		require.Len(s, s.Keys(ctx, s.Beats()+":aside:*").Val(), 1)
	})
}

func TestALeaderWritesOnlyRecordsThatAreAsItReadThem(t *testing.T) {
	inWorlds(t, func(s *term) {
		ctx := s.Context()
		s.do("DEL", s.Beats())
		s.do("HSET", s.Beats(), "old", "a", "beat", "b", "spent", "c", "back", "d")
		changes := []guard.Change{
			{Owner: "new", Is: "1"}, {Owner: "old", Was: "a", Is: "2"}, {Owner: "beat", Was: "x", Is: "3"},
			{Owner: "spent", Was: "c"}, {Owner: "back", Was: "x"},
		}
		stranger := guard.Lease{Token: "leader/2", Epoch: 101}
		v, _, err := s.guard.Write(ctx, stranger, changes)
		require.NoError(s, err)
		require.Equal(s, guard.Fenced, v)
		require.Equal(s, map[string]string{"old": "a", "beat": "b", "spent": "c", "back": "d"}, s.HGetAll(ctx, s.Beats()).Val())

		v, changed, err := s.guard.Write(ctx, s.lease, changes)
		require.NoError(s, err)
		require.Equal(s, guard.Done, v)
		require.Equal(s, []string{"beat", "back"}, changed)
		require.Equal(s, map[string]string{"new": "1", "old": "2", "beat": "b", "back": "d"}, s.HGetAll(ctx, s.Beats()).Val())
	})
}

func TestAHeartbeatThatRedisEvictedCondemnsNobody(t *testing.T) {
	s := onServer(t)
	s.alive()
	s.record("dead", doubt.Holds, time.Second)
	s.evict()
	require.Equal(t, guard.Answer{Verdict: guard.Alive}, s.judges(s.batch(1)), "its record stays")
	s.untouched()
	require.Equal(t, "gap", s.HGet(t.Context(), s.Witness(), "reason").Val(), "and nobody is held")
}

// evict makes the server evict the live owner's heartbeat, as a full cache does.
func (s *term) evict() {
	ctx := s.Context()
	s.must(s.ConfigSet(ctx, "maxmemory-policy", "volatile-ttl"))
	s.must(s.ConfigSet(ctx, "maxmemory", "1mb"))
	_ = s.Set(ctx, "filler", "x", 0).Err() // refused if the heartbeat was the only volatile key
	s.must(s.ConfigSet(ctx, "maxmemory", "0"))
	require.Zero(s, s.Exists(ctx, s.Heartbeat("dead")).Val(), "the heartbeat was not evicted")
}

// turnsAway makes the server refuse clients, in each way that it counts.
var turnsAway = map[string]func(s *term, addr string){
	"a connection, for want of room": func(s *term, addr string) {
		s.must(s.ConfigSet(s.Context(), "maxclients", "1"))
		conn, err := net.Dial("tcp", addr)
		require.NoError(s, err)
		require.NoError(s, conn.SetReadDeadline(time.Now().Add(patience)))
		line, _ := bufio.NewReader(conn).ReadString('\n')
		require.Contains(s, line, "max number of clients")
		require.NoError(s, conn.Close())
		s.must(s.ConfigSet(s.Context(), "maxclients", "1000"))
	},
	"a wrong password": func(s *term, addr string) {
		refused(s.T, redis.Options{Addr: addr, Username: "nobody", Password: "p"}, "WRONGPASS")
	},
	"no password": func(s *term, addr string) {
		s.must(s.Do(s.Context(), "ACL", "SETUSER", "default", "resetpass", ">secret"))
		refused(s.T, redis.Options{Addr: addr}, "NOAUTH")
		s.must(s.Do(s.Context(), "ACL", "SETUSER", "default", "nopass"))
	},
	"a command": func(s *term, addr string) {
		s.must(s.Do(s.Context(), "ACL", "SETUSER", "few", "on", ">p", "~*", "+@all", "-ping"))
		refused(s.T, redis.Options{Addr: addr, Username: "few", Password: "p"}, "NOPERM")
	},
	"memory for a client": func(s *term, addr string) {
		s.must(s.ConfigSet(s.Context(), "maxmemory-clients", "1mb"))
		conn, err := net.Dial("tcp", addr)
		require.NoError(s, err)
		require.NoError(s, conn.SetDeadline(time.Now().Add(patience)))
		// It may be cut before everything is written.
		_, _ = fmt.Fprintf(conn, "*2\r\n$4\r\nECHO\r\n$3000000\r\n%s", strings.Repeat("x", 2_000_000))
		_, err = conn.Read(make([]byte, 1))
		require.Error(s, err)
		require.False(s, errors.Is(err, os.ErrDeadlineExceeded), "it was not cut")
		require.NoError(s, conn.Close())
		s.must(s.ConfigSet(s.Context(), "maxmemory-clients", "0"))
	},
}

func refused(t *testing.T, o redis.Options, words string) {
	t.Helper()
	o.MaxRetries, o.DisableIdentity = -1, true
	c := redis.NewClient(&o)
	require.ErrorContains(t, c.Ping(t.Context()).Err(), words)
	require.NoError(t, c.Close())
}

func TestWhileRedisTurnsClientsAwayASilenceProvesNothingForTenGraces(t *testing.T) {
	t.Parallel()
	for name, turnsAway := range turnsAway {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			s, ctx := newTerm(t, srv.Options(), ""), t.Context()
			s.alive()
			s.do("DEL", s.Heartbeat("dead")) // it expired: its beats are refused
			s.record("dead", doubt.Holds, ttl+9*grace)
			s.witness("since", time.Hour)
			turnsAway(s, srv.Addr())
			require.Equal(t, guard.Answer{Verdict: guard.Wait, Reason: "refused"}, s.judges(s.batch(1)))
			s.untouched()
			require.Equal(t, "gap", s.HGet(ctx, s.Witness(), "reason").Val(), "no hold")
			for _, later := range []func(){
				func() { s.witness("refused_at", grace) },
				func() { s.record("dead", doubt.Holds, ttl+10*grace); turnsAway(s, srv.Addr()) },
				func() { s.record("dead", doubt.Bye, 0); turnsAway(s, srv.Addr()) },
			} {
				s.seed()
				later()
				require.Equal(t, guard.Done, s.judges(s.batch(uint64(s.XLen(ctx, s.Log()).Val()))).Verdict)
			}
		})
	}
}

func TestWhatCannotBeReadIsNoEvidence(t *testing.T) {
	s := onServer(t)
	ctx := s.Context()
	s.witness("since", time.Hour)
	poor := s.poor("poor", "-info")
	before := s.HMGet(ctx, s.Witness(), "server", "refused", "since").Val()
	w, err := poor.Tick(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{guard.CheckRefused, "redis_evicting", "restarted"}, w.ChecksOff, "although others have read them")
	require.Zero(t, w.HeldFor)
	require.Equal(t, before, s.HMGet(ctx, s.Witness(), "server", "refused", "since").Val())
	require.Equal(t, fmt.Sprint(w.Now.UnixMilli()), s.HGet(ctx, s.Witness(), "refused_at").Val(), "somebody may be turned away")
	require.Equal(t, "refused", s.judges(s.batch(1)).Reason)

	s.do("HDEL", s.Witness(), "refused", "refused_at")
	_, err = poor.Tick(ctx)
	require.NoError(t, err)
	require.False(t, s.HExists(ctx, s.Witness(), "refused_at").Val())
	require.Equal(t, guard.Done, s.judges(s.batch(2)).Verdict, "such a fleet is not protected from refusals")
	s.witness("refused_at", -time.Hour)
	w = s.tick()
	require.Equal(t, fmt.Sprint(w.Now.UnixMilli()), s.HGet(ctx, s.Witness(), "refused_at").Val(), "or it would last")
}

// What a sweep looks for may be among the keys that Redis evicts. An owner has a record.
func TestAfterAnEvictionABatchWithoutAnOwnerIsHeldForAGrace(t *testing.T) {
	s := onServer(t)
	s.witness("since", time.Hour)
	b := s.batch(1)
	b.Owner = ""
	for n, evicted := range map[string]any{"it grew": -1, "nobody can read it any more": "x"} {
		s.do("HSET", s.Witness(), "evicted_keys", evicted)
		require.Equal(t, guard.Answer{Verdict: guard.Held, Reason: "redis_evicting"}, s.judges(b), n)
		w := s.tick()
		require.Positive(t, w.EvictingFor)
		require.Zero(t, w.HeldFor, "owners are not concerned")
	}
	s.witness("evicted_at", grace)
	require.Equal(t, guard.Done, s.judges(b).Verdict)
}
