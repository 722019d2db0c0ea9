package main

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// entitled makes a user of docs/redis.md, and returns the URL for that user. The janitor has the
// rights of rollcall without those that the page says it does not need.
func entitled(t *testing.T, server *redistest.Server, user string) string {
	t.Helper()
	const page = "../../docs/redis.md"
	var rules []any
	if user == "janitor" {
		rules = slices.DeleteFunc(redistest.User(t, page, "rollcall"), func(rule any) bool {
			return rule == "~telemetry:*" || rule == "%R~devices:allowed"
		})
	} else {
		rules = redistest.User(t, page, user)
	}
	require.NoError(t, server.Client().Do(t.Context(), append([]any{"ACL", "SETUSER", user}, rules...)...).Err())
	return "--redis-url=redis://" + user + ":PASSWORD@" + server.Addr()
}

// Each documented user can do everything that it is for, without a refusal by Redis, even one
// that would be silently skipped.
func TestEachDocumentedUserIsEnoughForWhatItIsFor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, ctx := server.Client(), t.Context()
	defer func() {
		refused, err := rdb.ACLLog(context.Background(), 100).Result()
		require.NoError(t, err)
		for _, r := range refused {
			t.Errorf("refused to %s: %s %s, from %s", r.Username, r.Reason, r.Object, r.Context)
		}
	}()
	require.NoError(t, rdb.SAdd(ctx, "devices:allowed", imei).Err())
	one := serving(t, append(quick, entitled(t, server, "rollcall"), "--device-authority=set", "--instance-id=one", "--admin-token="+adminToken)...)
	janitor := start(t, append(quick, entitled(t, server, "janitor"), "--ingest-addr=off", "--instance-id=janitor")...)
	janitor.Serves()

	other := sim.New("352093081452251", patience)
	t.Cleanup(other.Close)
	accepted, err := other.Connect(ctx, one.devices)
	require.NoError(t, err)
	require.False(t, accepted, "it is not in the set")
	one.obedient(imei)
	code, stdout, stderr := command(t, entitled(t, server, "sender"), imei, "getver")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "did getver\n", stdout)
	code, stdout, stderr = command(t, entitled(t, server, "sender"), "--queue", imei, "getver")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "did getver\n", stdout)
	require.NoError(t, rdb.XAdd(ctx, &redis.XAddArgs{Stream: "commands:queue", Values: []string{"id", "old", "imei", imei, "text", "x", "expires", "1"}}).Err())
	require.Eventually(t, func() bool { return rdb.XLen(ctx, "commands:queue").Val() == 0 }, patience, 20*time.Millisecond)
	require.Equal(t, teltonika.Codec8.String(), rdb.XRange(ctx, "telemetry:teltonika", "-", "+").Val()[0].Values["codec"])

	one.Await(func() bool { return one.state().Janitor.Leading || janitor.state().Janitor.Leading })
	if one.state().Janitor.Leading {
		code, body := one.Post("/api/v1/resign", adminToken)
		require.Equal(t, 200, code, body)
	}
	janitor.Await(func() bool { return janitor.state().Ready && janitor.state().Janitor.Leading })
	require.Empty(t, janitor.state().Devices.Addr)
	_, body := janitor.Get("/")
	require.Contains(t, body, "no device listener")
	// A dead owner's leftovers, and a command that is too late for it.
	require.NoError(t, rdb.HSet(ctx, "connections:registry", "1", "ghost").Err())
	require.NoError(t, rdb.SAdd(ctx, "instances:roster", "ghost").Err())
	require.NoError(t, rdb.SAdd(ctx, "instance:devices:ghost", "1").Err())
	late := redis.XAddArgs{Stream: "commands:outbound:ghost", Values: []string{"id", "late", "imei", imei, "text", "x"}}
	require.NoError(t, rdb.XAdd(ctx, &late).Err())
	require.Eventually(t, func() bool {
		return rdb.HExists(ctx, "connections:registry", "1").Val() == false &&
			rdb.Exists(ctx, "commands:outbound:ghost", "instance:devices:ghost").Val() == 0
	}, patience, 20*time.Millisecond)

	// No user has more rights than it needs.
	for user, commands := range map[string][][]any{
		"rollcall": {{"sadd", "devices:allowed", "1"}, {"del", "devices:allowed"}, {"flushall"}, {"config", "get", "*"}},
		"janitor":  {{"xadd", "telemetry:teltonika", "*", "a", "b"}, {"smembers", "devices:allowed"}},
		"sender": {
			{"hset", "connections:registry", "1", "x"}, {"del", "commands:outbound:one"}, {"xdel", "commands:queue", "1-0"}, {"xadd", "commands:responses", "*", "a", "b"},
			{"set", "instance:heartbeat:one", "x"},
		},
	} {
		for _, c := range commands {
			said, err := rdb.Do(ctx, append([]any{"ACL", "DRYRUN", user}, c...)...).Text()
			require.NoError(t, err)
			require.Contains(t, said, "has no permissions", "%s: %v", user, c)
		}
	}
}
