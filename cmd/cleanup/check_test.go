package main

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/mongodb/mongotest"
)

// game writes what a game on Colyseus has in an ordinary hour, as the shipped rules know it, and
// returns the arguments of a check with those rules.
func game(t *testing.T, server *redistest.Server) (args []string) {
	t.Helper()
	ctx, rdb, db := t.Context(), server.Client(), mongotest.Database(t)
	at := func(ago time.Duration) string { return strconv.FormatInt(time.Now().Add(-ago).UnixMilli(), 10) }
	_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 6 {
			user, room, bot := fmt.Sprint("user", i), fmt.Sprint("room", i), fmt.Sprint("bot", i)
			p.HSet(ctx, "roomcaches", room, `{"roomId":"`+room+`"}`)
			p.Set(ctx, "queue:reservation:"+user, `{"roomId":"`+room+`"}`, 50*time.Minute)
			p.ZAdd(ctx, "queue:elo", redis.Z{Score: 1500, Member: "waits" + user})
			p.Set(ctx, "queue:joinedAt:waits"+user, at(time.Minute), 0)
			p.SAdd(ctx, "bots:deployed", bot)
			p.Set(ctx, "bots:state:"+bot, "idle", 0)
		}
		p.SAdd(ctx, "bots:active", "bot5")
		p.Set(ctx, "queue:reservation:user9", `{"status":"creating"}`, time.Minute)
		p.Set(ctx, "colyseus:nodes", "1", 0)
		return nil
	})
	require.NoError(t, err)
	for i := range 6 {
		sub := rdb.Subscribe(ctx, fmt.Sprint("$room", i))
		t.Cleanup(func() { _ = sub.Close() })
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		id := bson.NewObjectID()
		_, err = db.Collection("matches").InsertOne(ctx, bson.D{{Key: "_id", Value: id}, {Key: "status", Value: "ongoing"}})
		require.NoError(t, err)
		for _, key := range []string{"", ":ratings", ":user:user1"} {
			require.NoError(t, rdb.Set(ctx, "match:"+id.Hex()+key, "{}", time.Hour).Err())
		}
	}
	return []string{"check", "--redis-url=redis://" + server.Addr(), "--mongodb-uri=" + db.URI}
}

func TestTheShippedRulesFitAGameOnColyseus(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	ctx, rdb, args := t.Context(), server.Client(), game(t, server)
	fits := func(what string) string {
		code, out, said := says(t, args...)
		require.Equal(t, cli.ExitOK, code, "%s: %s%s", what, out, said)
		return out
	}
	fits("an ordinary hour")
	require.NoError(t, rdb.Del(ctx, "bots:active").Err())
	require.Contains(t, fits("no bot plays"), `nothing is called "bots:active" now`)
	for i := range 6 {
		require.NoError(t, rdb.Del(ctx, fmt.Sprint("queue:reservation:user", i)).Err())
	}
	require.Contains(t, fits("one seat in the making"), "1 candidates cannot be read, and stay")
	require.NoError(t, rdb.Del(ctx, "queue:reservation:user9").Err())
	require.Contains(t, fits("nobody has a seat"), `nothing is called "queue:reservation:{user}" now`)
	require.NoError(t, rdb.Del(ctx, "roomcaches").Err())
	require.Contains(t, fits("and no room is open"), "held: reference_lost: roomcaches does not exist")
	require.NoError(t, rdb.FlushAll(ctx).Err())
	fits("nothing is there")
}

func TestWhatEndangersTheLivingIsNoNote(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	args := game(t, server)
	for _, rules := range []string{
		// a sign that is misspelt, beside one that is not
		`{name: bots, keys: "bots:state:{bot}", unless_lost: [{exists: "bots:deployed"}],
  keep_if: [{member: {set: "bots:deployed", of: "{bot}"}}, {exists: "bot:lease:{bot}"}]}`,
		// a sign that is lost with one key
		`{name: bots, keys: "bots:state:{bot}", unless_lost: [{exists: "bots:deployed"}],
  keep_if: [{member: {set: "bots:deployed", of: "{bot}"}}, {member: {set: "bots:active", of: "{bot}"}}]}`,
		// nothing shows whether signs were lost, and a new key looks old
		`{name: queue, members: {zset: "queue:elo", as: user}, keep_if: [{exists: "queue:joinedAt:{user}"}]}`,
		// the channels of rooms, misspelt, beside a reference to the right ones
		`{name: reservations, keys: "queue:reservation:{user}", read: json, bind: {room: .roomId},
  keep_if: [{field: {hash: roomcaches, field: "{room}"}}, {channel: "room-{room}"}],
  unless_lost: [{exists: roomcaches}, {channels: {pattern: "$*", when: {hash_not_empty: roomcaches}}}]}`,
	} {
		code, out, said := says(t, append(args, "--rules="+rulesFile(t, "rules:\n- "+rules+"\n"))...)
		require.Equal(t, cli.ExitNo, code, rules+out+said)
	}
}
