//go:build colyseus

package colyseus_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// A game is one Redis, with the processes that a test starts on it.
type game struct {
	t      *testing.T
	v      version
	server *redistest.Server
	rdb    *redis.Client
}

func newGame(t *testing.T, v version) *game {
	// The test is told of each key that goes, whoever deletes it.
	server := redistest.Start(t, "--notify-keyspace-events", "KEA")
	return &game{t: t, v: v, server: server, rdb: server.Client()}
}

func (g *game) start() *backend { g.t.Helper(); return startBackend(g.t, g.v, g.server) }

// listed tells whether Colyseus' listing has the room.
func (g *game) listed(room string) bool {
	g.t.Helper()
	is, err := g.rdb.HExists(g.t.Context(), "roomcaches", room).Result()
	require.NoError(g.t, err)
	return is
}

// heard is the number of subscribers of a room's channel.
func (g *game) heard(room string) int64 {
	g.t.Helper()
	n, err := g.rdb.PubSubNumSub(g.t.Context(), "$"+room).Result()
	require.NoError(g.t, err)
	return n["$"+room]
}

// seen is what Redis shows of a room: whether it is listed, and the subscribers of its channel.
func (g *game) seen(room string) []any { g.t.Helper(); return []any{g.listed(room), g.heard(room)} }

func (g *game) eventually(what string, done func() bool) {
	g.t.Helper()
	require.Eventually(g.t, done, patience, 20*time.Millisecond, what)
}

// What a rule for Colyseus relies on. Each step uses rooms of its own, on two processes.
func TestWhatColyseusDoes(t *testing.T) {
	forVersions(t, func(t *testing.T, v version) {
		g := newGame(t, v)
		ctx := t.Context()
		one, two := g.start(), g.start()

		// Keys: a listing for each room, a count for each process, and what the game itself writes.
		room := one.create("ann")
		require.Equal(t, []any{true, int64(1)}, g.seen(room))
		var listing map[string]any
		require.NoError(t, json.Unmarshal([]byte(g.rdb.HGet(ctx, "roomcaches", room).Val()), &listing))
		require.Equal(t, room, listing["roomId"])
		require.Equal(t, one.name, listing["processId"])
		require.Subset(t, keysOf(listing),
			[]string{"clients", "maxClients", "locked", "private", "unlisted", "name"})
		require.NotContains(t, listing, "publicAddress", "only a server that sets one has it")
		keys := []string{"queue:reservation:ann", "roomcaches", "roomcount"}
		if v.keepsNodes() {
			keys = append([]string{"colyseus:nodes"}, keys...)
		}
		require.Equal(t, keys, g.keys())
		require.ElementsMatch(t, []string{one.name, two.name}, g.rdb.HKeys(ctx, "roomcount").Val())

		// Channels: one for each room, and one for each process.
		require.ElementsMatch(t, []string{"$" + room, "p:" + one.name, "p:" + two.name},
			g.rdb.PubSubChannels(ctx, "*").Val())

		// In onCreate a room has neither, and the reservation is there already.
		held, open := one.hold("bob", nil)
		require.Equal(t, []any{false, int64(0)}, g.seen(held))
		require.Contains(t, g.rdb.Get(ctx, "queue:reservation:bob").Val(), held)
		require.Contains(t, one.rooms(), held)
		require.Empty(t, open().Error)
		require.Equal(t, []any{true, int64(1)}, g.seen(held))

		// One whose onCreate fails never has either. The reservation stays.
		failing, open := one.hold("cat", args{"fail": true})
		require.NotEmpty(t, open().Error)
		require.Equal(t, []any{false, int64(0)}, g.seen(failing))
		require.Contains(t, g.rdb.Get(ctx, "queue:reservation:cat").Val(), failing)

		// Locked, private, unlisted and empty rooms are listed as others are.
		for _, op := range []string{"lock", "hide", "unlist"} {
			room := one.create(op)
			one.do(op, args{"roomId": room})
			require.Equal(t, []any{true, int64(1)}, g.seen(room), op)
		}
		one.do("join", args{"user": "ann", "roomId": room})
		one.do("leave", args{"user": "ann"})
		require.Equal(t, []any{true, int64(1)}, g.seen(room))

		// A room that is disposed has neither any more, also one that goes with its last client.
		one.do("dispose", args{"roomId": room})
		g.eventually("disposed", func() bool { return !g.listed(room) && g.heard(room) == 0 })
		brief := one.do("create", args{"user": "dan", "stay": false})
		one.do("join", args{"user": "dan", "roomId": brief})
		one.do("leave", args{"user": "dan"})
		g.eventually("gone with its client", func() bool { return !g.listed(brief) && g.heard(brief) == 0 })
		require.NotContains(t, one.rooms(), brief)
	})
}

// A process that is stopped for a second loses its listings, though its rooms live.
func TestAProcessThatIsStoppedIsSweptByAnother(t *testing.T) {
	forVersions(t, func(t *testing.T, v version) {
		g := newGame(t, v)
		one, two := g.start(), g.start()
		room, other := two.create("ann"), two.create("bob")
		two.stop()
		require.NotEmpty(t, one.begin("visit", args{"roomId": room})().Error)
		require.Equal(t, []any{false, int64(1)}, g.seen(room))
		require.Equal(t, []any{false, int64(1)}, g.seen(other), "all listings of the process go")

		two.cont()
		require.Equal(t, sorted([]string{room, other}), two.rooms())
		if v.restoresListings() {
			g.eventually("listed again", func() bool { return g.listed(room) && g.listed(other) })
			return
		}
		two.do("lock", args{"roomId": room})
		g.eventually("listed with its next save", func() bool { return g.listed(room) })
		require.Equal(t, []any{false, int64(1)}, g.seen(other), "nothing is saved, nothing is listed")
	})
}

// A process that is stopped carries out an order once it wakes. By then another has made the room,
// too: one user has two rooms, and the reservation is of the later one.
func TestAnOrderToAStoppedProcessIsCarriedOutTwice(t *testing.T) {
	forVersions(t, func(t *testing.T, v version) {
		g := newGame(t, v)
		one, two := g.start(), g.start()
		old := two.create("ann")
		two.stop()
		first := one.do("create", args{"user": "bob", "on": two.name})
		require.Equal(t, []string{first}, one.rooms())
		require.Equal(t, []any{true, int64(1)}, g.seen(old), "an order takes no listing away")
		two.cont()
		g.eventually("made again", func() bool { return len(two.rooms()) == 2 })
		second := without(two.rooms(), []string{old})[0]
		g.eventually("listed", func() bool { return g.listed(first) && g.listed(second) })
		require.Contains(t, g.rdb.Get(t.Context(), reservation+"bob").Val(), second)
		require.NotEqual(t, first, second)
	})
}

// A killed process leaves its listings. A process that starts takes them away, unless something
// has dropped the dead one's count before.
func TestAKilledProcessLeavesItsListings(t *testing.T) {
	forVersions(t, func(t *testing.T, v version) {
		g := newGame(t, v)
		one, two, three := g.start(), g.start(), g.start()
		found, lost := two.create("ann"), three.create("bob")
		g.eventually("counted", func() bool {
			return g.rdb.HGet(t.Context(), "roomcount", two.name).Val() == "1,0" &&
				g.rdb.HGet(t.Context(), "roomcount", three.name).Val() == "1,0"
		})
		two.kill()
		three.kill()
		g.eventually("channels go", func() bool { return g.heard(found) == 0 && g.heard(lost) == 0 })
		require.True(t, g.listed(found) && g.listed(lost))

		// Who orders a room from a dead process drops its count, and makes the room itself.
		made := one.do("create", args{"user": "cat", "on": three.name})
		require.Equal(t, []string{made}, one.rooms())
		require.False(t, g.rdb.HExists(t.Context(), "roomcount", three.name).Val())
		require.True(t, g.listed(lost))
		g.start()
		require.Equal(t, []any{false, int64(0)}, g.seen(found))
		require.Equal(t, []any{true, int64(0)}, g.seen(lost))

		// Who asks for a seat in that room has it looked at again: only 0.18 takes it away then.
		require.NotEmpty(t, one.begin("visit", args{"roomId": lost})().Error)
		require.Equal(t, []any{!v.restoresListings(), int64(0)}, g.seen(lost))
	})
}

// After FLUSHALL rooms live on, and are listed again only when they save something. A room that is
// made brings the hash of listings back without them.
func TestFlushallLeavesRoomsWithTheirChannels(t *testing.T) {
	forVersions(t, func(t *testing.T, v version) {
		g := newGame(t, v)
		one := g.start()
		idle, busy := one.create("ann"), one.create("bob")
		require.NoError(t, g.rdb.FlushAll(t.Context()).Err())
		require.Equal(t, []any{false, int64(1)}, g.seen(idle))
		made := one.create("cat")
		one.do("lock", args{"roomId": busy})
		g.eventually("saved", func() bool { return g.listed(busy) })
		require.Equal(t, []any{false, int64(1)}, g.seen(idle))
		require.Equal(t, []any{true, int64(1)}, g.seen(made))
		require.Equal(t, sorted([]string{idle, busy, made}), one.rooms())
	})
}

func (g *game) keys() []string {
	g.t.Helper()
	keys, err := g.rdb.Keys(g.t.Context(), "*").Result()
	require.NoError(g.t, err)
	// The lock of concurrent requests, which expires within seconds.
	return sorted(slices.DeleteFunc(keys, func(k string) bool { return strings.HasPrefix(k, "ch:") }))
}

func keysOf(m map[string]any) (keys []string) {
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

func sorted(s []string) []string { slices.Sort(s); return s }
