//go:build colyseus

package colyseus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
)

const reservation = "queue:reservation:"

// old makes reservations ten minutes old: their age is known by what is left of their hour.
func (g *game) old(users ...string) {
	g.t.Helper()
	for _, user := range users {
		is, err := g.rdb.Expire(g.t.Context(), reservation+user, 50*time.Minute).Result()
		require.NoError(g.t, err)
		require.True(g.t, is, "%s has no reservation", user)
	}
}

// reserved are the users that have a reservation, in order.
func (g *game) reserved() (users []string) {
	g.t.Helper()
	keys, err := g.rdb.Keys(g.t.Context(), reservation+"*").Result()
	require.NoError(g.t, err)
	for _, key := range keys {
		users = append(users, key[len(reservation):])
	}
	return sorted(users)
}

// A stage is a game with a worker beside it, and what is expected of reservations.
type stage struct {
	*game
	worker *worker
	gone   *recorder
	living []string // users whose reservation must stay
	dead   []string // users whose reservation has gone, by what the test did
}

func newStage(t *testing.T, v version, source orphan.Source) *stage {
	s := &stage{game: newGame(t, v)}
	s.gone = s.record()
	s.worker = startWorker(s.game, source)
	return s
}

// lives says that these users' reservations must stay.
func (s *stage) lives(users ...string) { s.living = append(s.living, users...) }

// dies says that these users' reservations have to go, and waits until they have.
func (s *stage) dies(users ...string) {
	s.t.Helper()
	s.living = without(s.living, users)
	s.dead = append(s.dead, users...)
	s.eventually(fmt.Sprintf("the reservations of %v go", users), func() bool {
		n, err := s.rdb.Exists(s.t.Context(), prefixed(reservation, users)...).Result()
		require.NoError(s.t, err)
		return n == 0
	})
	s.holds()
}

// holds checks that exactly the dead have lost their reservations, each once, and that all who
// count agree: Redis, the worker's log and the worker's own figures.
func (s *stage) holds() {
	s.t.Helper()
	require.ElementsMatch(s.t, s.living, s.reserved())
	s.eventually("all is told", func() bool { return len(s.gone.of(reservation)) >= len(s.dead) })
	require.ElementsMatch(s.t, s.dead, s.gone.of(reservation))
	s.eventually("all is logged", func() bool { return len(s.logged(guard.Layout{}, "reservations")) >= len(s.dead) })
	require.ElementsMatch(s.t, prefixed(reservation, s.dead), s.logged(guard.Layout{}, "reservations"))
	s.eventually("all is counted", func() bool {
		return s.worker.set.Stats().Rules["reservations"] >= uint64(len(s.dead))
	})
	require.EqualValues(s.t, len(s.dead), s.worker.set.Stats().Categories["expiredReservations"])
}

// stays lets the worker look several times, and checks that nothing more has gone.
func (s *stage) stays() orphan.Result {
	s.t.Helper()
	last := s.worker.looks()
	s.holds()
	return last
}

// From the first room to the last, beside a worker that never pauses. Nothing of a living room
// goes, in whatever state it is. What is dead goes.
func TestReservationsOfLivingRoomsStayAndOthersGo(t *testing.T) {
	forVersions(t, func(t *testing.T, v version) {
		s := newStage(t, v, matches{"000000000000000000000000": nil})
		one, two, three := s.start(), s.start(), s.start()

		// Rooms that live, in every state that hides them from players.
		rooms := map[string]string{}
		for _, user := range []string{"live", "idle", "left", "lock", "hide", "unlist"} {
			rooms[user] = one.create(user)
		}
		one.do("join", args{"user": "live", "roomId": rooms["live"]})
		one.do("join", args{"user": "left", "roomId": rooms["left"]})
		one.do("leave", args{"user": "left"})
		for _, op := range []string{"lock", "hide", "unlist"} {
			one.do(op, args{"roomId": rooms[op]})
		}
		s.old("live", "idle", "left", "lock", "hide", "unlist")
		s.lives("live", "idle", "left", "lock", "hide", "unlist")

		// A room that is being made, by the game and by Colyseus. The first kind lasts a minute; here it
		// only looks as old as that makes it, so that no slow machine sees it expire.
		making := s.rdb.Set(t.Context(), reservation+"queued", `{"status":"creating"}`, 50*time.Minute)
		require.NoError(t, making.Err())
		s.lives("queued")
		s.stays() // now the worker is known to sweep
		_, open := one.hold("creating", nil)
		s.lives("creating")
		s.stays()
		require.Empty(t, open().Error)
		s.old("creating")

		// Rooms that end: by order, with their last client, before they began.
		one.do("dispose", args{"roomId": one.create("disposed")})
		brief := one.do("create", args{"user": "brief", "stay": false})
		one.do("join", args{"user": "brief", "roomId": brief})
		one.do("leave", args{"user": "brief"})
		_, fail := one.hold("failed", args{"fail": true})
		require.NotEmpty(t, fail().Error)
		s.old("disposed", "brief", "failed")
		s.dies("disposed", "brief", "failed")

		// A process that is killed: a room in its onCreate goes. A room that Colyseus still lists is
		// kept until a process starts, and takes the listing away.
		killed := three.create("killed")
		three.hold("unborn", nil)
		s.old("killed", "unborn")
		s.lives("killed")
		three.kill()
		s.dies("unborn")
		require.True(t, s.listed(killed))
		require.Zero(t, s.heard(killed))
		s.stays()
		four := s.start()
		require.False(t, s.listed(killed))
		s.dies("killed")

		// A process that is stopped, and swept by another: its rooms live.
		frozen, other := two.create("frozen"), two.create("other")
		s.old("frozen", "other")
		s.lives("frozen", "other")
		two.stop()
		require.NotEmpty(t, four.begin("visit", args{"roomId": frozen})().Error)
		require.Equal(t, []any{false, int64(1)}, s.seen(frozen))
		s.stays()
		two.cont()
		require.ElementsMatch(t, []string{frozen, other}, two.rooms())
		s.stays()
		two.do("dispose", args{"roomId": frozen})
		s.dies("frozen")

		// The list of rooms is lost, and comes back with the room that is made next: it has one room
		// of many. Each keeps the others by its channel.
		require.NoError(t, s.rdb.Del(t.Context(), "roomcaches").Err())
		s.worker.await("reservations", 3, janitor.Held, "reference_lost")
		s.holds()
		late := one.create("late")
		s.lives("late")
		s.old("late")
		require.EqualValues(t, 1, s.rdb.HLen(t.Context(), "roomcaches").Val())
		s.stays()
		one.do("dispose", args{"roomId": rooms["idle"]})
		s.dies("idle")
		one.do("dispose", args{"roomId": late})

		// All is lost, and the game writes what it knows again: rooms stay, unlisted. A reservation of
		// a room that is gone goes, once Redis has been listened to for long enough.
		require.NoError(t, s.rdb.FlushAll(t.Context()).Err())
		again := func(user, room string) {
			value := fmt.Sprintf(`{"roomId":%q,"roomName":"game","matchId":"m","problemId":"p"}`, room)
			require.NoError(t, s.rdb.Set(t.Context(), reservation+user, value, 50*time.Minute).Err())
		}
		s.living = nil
		for _, user := range []string{"live", "left", "lock"} {
			again(user, rooms[user])
			s.lives(user)
		}
		s.worker.await("reservations", 1, janitor.Held, "reference_lost")
		s.lives("new")
		one.create("new")
		again("late", late)
		s.eventually("late goes", func() bool { return s.rdb.Exists(t.Context(), reservation+"late").Val() == 0 })
		s.worker.looks()
		require.ElementsMatch(t, s.living, s.reserved())
		require.Equal(t, []string{reservation + "late"}, s.logged(guard.Layout{}, "reservations"))
	})
}

// The limit of the rule: while onCreate runs nothing tells of the room but the reservation's age.
// So over has to be longer than the longest onCreate.
func TestAReservationGoesIfOnCreateTakesLongerThanTheRuleSays(t *testing.T) {
	forVersions(t, func(t *testing.T, v version) {
		s := newStage(t, v, matches{"000000000000000000000000": nil})
		one := s.start()
		one.create("ann")
		room, open := one.hold("bob", nil)
		s.lives("ann")
		s.old("ann", "bob")
		s.dies("bob")
		require.Empty(t, open().Error)
		require.Equal(t, []any{true, int64(1)}, s.seen(room))
	})
}

// A process with most of the game's rooms dies. More than half of all reservations are condemned at
// once: the rule waits once, for a minute at least, in case the evidence is what was lost. Then
// they go.
func TestTheRoomsOfALargeProcessGoAfterAPause(t *testing.T) {
	t.Parallel()
	s := newStage(t, "0.15", matches{"000000000000000000000000": nil})
	large, small := s.start(), s.start()
	var dead []string
	for i := range 20 {
		dead = append(dead, fmt.Sprintf("dead%d", i))
		large.create(dead[i])
	}
	for _, user := range []string{"ann", "bob", "cat"} {
		small.create(user)
		s.lives(user)
	}
	s.old(append(dead, s.living...)...)
	s.lives(dead...)
	s.stays()
	s.eventually("counted", func() bool {
		return s.rdb.HGet(t.Context(), "roomcount", large.name).Val() == "20,0"
	})
	large.kill()
	s.start()
	s.worker.await("reservations", 2, janitor.Held, "mass_failure")
	s.holds()
	s.dies(dead...)
	s.stays()
}

// What Rollcall calls the four categories, on what a game leaves behind.
func TestQueueMatchesAndBots(t *testing.T) {
	forVersions(t, func(t *testing.T, v version) {
		ended := func(status string, ago time.Duration) orphan.Document {
			return orphan.Document{"status": status, "endedAt": time.Now().Add(-ago)}
		}
		const over, cut, fresh, ongoing, unknown = "aaaaaaaaaaaaaaaaaaaaaaa1", "aaaaaaaaaaaaaaaaaaaaaaa2",
			"aaaaaaaaaaaaaaaaaaaaaaa3", "aaaaaaaaaaaaaaaaaaaaaaa4", "aaaaaaaaaaaaaaaaaaaaaaa5"
		s := newStage(t, v, matches{
			over: ended("finished", 2*time.Hour), cut: ended("abandoned", 2*time.Hour),
			fresh: ended("finished", 10*time.Minute), ongoing: {"status": "playing"},
		})
		ctx, one := t.Context(), s.start()

		// In the queue: with a seat in a living room; with one in a room that is gone; without any, for
		// long, and for a minute. A rating is no time, however low or high.
		one.create("seated")
		one.do("dispose", args{"roomId": one.create("stranded")})
		s.old("seated", "stranded")
		for user, waiting := range map[string]time.Duration{
			"seated": time.Hour, "stranded": time.Hour, "stale": time.Hour, "master": time.Hour,
			"waiting": time.Minute,
		} {
			rating := map[string]float64{"master": 1e13}[user] + 1200
			require.NoError(t, s.rdb.ZAdd(ctx, "queue:elo", redis.Z{Score: rating, Member: user}).Err())
			at := time.Now().Add(-waiting).UnixMilli()
			require.NoError(t, s.rdb.Set(ctx, "queue:joinedAt:"+user, at, 0).Err())
		}

		// Matches, with what belongs to them.
		for _, id := range []string{over, cut, fresh, ongoing, unknown} {
			for _, key := range []string{"", ":ratings", ":submissions", ":user:ann", ":user:bob"} {
				require.NoError(t, s.rdb.Set(ctx, "match:"+id+key, "{}", time.Hour).Err())
			}
		}
		require.NoError(t, s.rdb.Set(ctx, "match:lobby", "{}", 0).Err())

		// Bots: deployed, active, and in neither set.
		require.NoError(t, s.rdb.SAdd(ctx, "bots:deployed", "d").Err())
		require.NoError(t, s.rdb.SAdd(ctx, "bots:active", "a").Err())
		for bot, state := range map[string]string{"d": "idle", "a": "playing", "crashed": "matched"} {
			require.NoError(t, s.rdb.Set(ctx, "bots:state:"+bot, state, 0).Err())
		}

		left := []string{"queue:elo", "queue:joinedAt:seated", "queue:joinedAt:waiting", reservation + "seated",
			"match:lobby", "bots:deployed", "bots:active", "bots:state:d", "bots:state:a"}
		for _, id := range []string{fresh, ongoing, unknown} {
			for _, key := range []string{"", ":ratings", ":submissions", ":user:ann", ":user:bob"} {
				left = append(left, "match:"+id+key)
			}
		}
		there := func() []string {
			var keys []string
			for _, pattern := range []string{"queue:*", "match:*", "bots:*"} {
				keys = append(keys, s.rdb.Keys(ctx, pattern).Val()...)
			}
			return keys
		}
		s.eventually("what is over goes", func() bool { return len(there()) <= len(left) })
		for _, rule := range shipped() {
			s.worker.await(rule.Name, 6, janitor.Done, "")
		}
		require.ElementsMatch(t, left, there())
		require.ElementsMatch(t, []string{"seated", "waiting"}, s.rdb.ZRange(ctx, "queue:elo", 0, -1).Val())
		require.Equal(t, orphan.Stats{
			Categories: map[string]uint64{
				"expiredReservations": 1, "staleQueueEntries": 3, "abandonedMatchKeys": 2, "orphanedBotStates": 1,
			},
			Rules: map[string]uint64{
				"reservations": 1, "queue": 3, "queue-joinedat": 3, "bots": 1, "matches": 2, "matches-ratings": 2,
				"matches-submissions": 2, "matches-user": 2 * 2,
			},
			Keys: 1 + 3*2 + 2*5 + 1,
			CategoryKeys: map[string]uint64{
				"expiredReservations": 1, "staleQueueEntries": 3 * 2, "abandonedMatchKeys": 2 * 5, "orphanedBotStates": 1,
			},
		}, s.worker.set.Stats())

		// What a bot's state was can be had again.
		aside := orphan.Bins{Client: s.rdb}
		bins, err := aside.List(ctx, "bots")
		require.NoError(t, err)
		require.Len(t, bins, 1)
		require.NoError(t, s.rdb.SAdd(ctx, "bots:active", "crashed").Err())
		_, err = aside.Restore(ctx, bins[0].ID)
		require.NoError(t, err)
		require.Equal(t, "matched", s.rdb.Get(ctx, "bots:state:crashed").Val())
	})
}

func prefixed(prefix string, names []string) []string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = prefix + name
	}
	return all
}

func without(all, some []string) (left []string) {
	drop := map[string]bool{}
	for _, each := range some {
		drop[each] = true
	}
	for _, each := range all {
		if !drop[each] {
			left = append(left, each)
		}
	}
	return left
}
