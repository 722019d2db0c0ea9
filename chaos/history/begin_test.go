package history

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// begins has a server write its history from now on.
func begins(t *testing.T, server *redistest.Server) {
	t.Helper()
	require.NoError(t, Begin(t.Context(), server.Client()))
	require.Eventually(t, func() bool {
		_, err := Read(server.Dir())
		return err == nil
	}, 30*time.Second, time.Millisecond)
}

// holds compares a model with the server, as far as a test writes it.
func holds(t *testing.T, c *redis.Client, k *Keyspace) {
	t.Helper()
	ctx := t.Context()
	keys := c.Keys(ctx, "*").Val()
	require.Len(t, keys, len(k.Strings)+len(k.Hashes)+len(k.Sets)+len(k.Streams))
	for key, value := range k.Strings {
		require.Equal(t, value, c.Get(ctx, key).Val(), key)
		if until, ok := k.Expiry[key]; ok {
			require.Equal(t, until.UnixMilli(), c.PExpireTime(ctx, key).Val().Milliseconds(), key)
		} else {
			require.Equal(t, time.Duration(-1), c.PExpireTime(ctx, key).Val(), key)
		}
	}
	for key, hash := range k.Hashes {
		require.Equal(t, hash, c.HGetAll(ctx, key).Val(), key)
	}
	for key, set := range k.Sets {
		require.Len(t, set, len(c.SMembers(ctx, key).Val()), key)
		for member := range set {
			require.True(t, c.SIsMember(ctx, key, member).Val(), key)
		}
	}
	for key, id := range k.Streams {
		require.Equal(t, id, c.XInfoStream(ctx, key).Val().LastGeneratedID, key)
	}
}

// fill writes one of everything that a server of ours may hold.
func fill(t *testing.T, c *redis.Client) {
	t.Helper()
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Set(t.Context(), "janitor:paused", "x", 0)
		p.Set(t.Context(), "instance:heartbeat:a", "1/boot", time.Hour)
		p.SAdd(t.Context(), "instances:roster", "a", "b")
		p.XAdd(t.Context(), &redis.XAddArgs{Stream: "janitor:log", ID: "5-0", Values: []string{"leader", "a", "term", "a/t"}})
		for i := range 2500 {
			p.HSet(t.Context(), "connections:registry", strconv.Itoa(i), "a")
		}
		p.PExpire(t.Context(), "instance:heartbeat:a", 2*time.Hour)
		p.XAdd(t.Context(), &redis.XAddArgs{Stream: "t", MaxLen: 10, Approx: true, Values: []string{"a", "b"}})
		p.SetNX(t.Context(), "nx", "1", time.Hour)
		return p.Unlink(t.Context(), "nothing").Err()
	})
	require.NoError(t, err)
	script := redis.NewScript(`
		redis.call('SET', KEYS[1], 'v', 'PX', 3600000)
		redis.call('HINCRBY', KEYS[2], 'n', 3)
		redis.call('XADD', KEYS[3], '*', 'count', 1)
		redis.call('HDEL', KEYS[2], '2499', 'never')
		redis.call('SADD', KEYS[4], 'a', 'b')
		return redis.call('SREM', KEYS[4], 'a', 'z')`)
	require.NoError(t, script.Run(t.Context(), c, []string{"s", "connections:registry", "x", "m"}).Err())
}

func TestAHistoryBeginsWithWhatTheServerHolds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	c, ctx := server.Client(), t.Context()
	fill(t, c)
	begins(t, server)

	script := redis.NewScript(`
		redis.call('SET', KEYS[1], 'v', 'PX', 3600000)
		redis.call('HDEL', KEYS[2], '1', '2')
		redis.call('XADD', KEYS[3], '6-0', 'leader', 'b', 'term', 'b/t')`)
	require.ErrorIs(t, script.Run(ctx, c, []string{"janitor:leader", "connections:registry", "janitor:log"}).Err(), redis.Nil)
	require.NoError(t, c.Set(ctx, "soon", "x", time.Millisecond).Err())
	require.Eventually(t, func() bool { return c.Exists(ctx, "soon").Val() == 0 }, 10*time.Second, time.Millisecond)

	h, err := Read(server.Dir())
	require.NoError(t, err)
	require.True(t, h[0].Life())
	require.InDelta(t, time.Now().Unix(), h[0].Second, 60)
	var names []string
	for _, cmd := range h[1].Commands {
		names = append(names, cmd[0])
	}
	require.Equal(t, []string{"SET", "HDEL", "XADD"}, names, "what a script does is one event")
	expiry := h[len(h)-1].Commands
	require.Len(t, expiry, 1, "an expiry is told")
	require.Contains(t, []Command{{"DEL", "soon"}, {"UNLINK", "soon"}}, expiry[0], "as Redis tells it, and as Valkey does")
	holds(t, c, played(t, h))
}

func TestTheNextLifeOfAServerThatForgetsIsAPartOfItsOwn(t *testing.T) {
	t.Parallel()
	server, aside := redistest.Start(t), t.TempDir()
	c := server.Client()
	require.NoError(t, c.Set(t.Context(), "a", "1", 0).Err())
	begins(t, server)
	require.NoError(t, c.Set(t.Context(), "b", "1", 0).Err())
	server.Kill()
	require.NoError(t, SetAside(server.Dir(), aside))
	server.Restart()
	begins(t, server)
	h, err := Read(aside, server.Dir())
	require.NoError(t, err)
	require.True(t, played(t, h[:len(h)-1]).Exists("b"))
	require.True(t, h[len(h)-1].Life(), "it begins with nothing")
	require.False(t, played(t, h).Exists("b"))

	require.NoError(t, c.Set(t.Context(), "c", "1", 0).Err())
	h, err = Read(aside, server.Dir())
	require.NoError(t, err)
	require.Equal(t, 1, h[len(h)-1].Part)
	holds(t, c, played(t, h))
}

// A server that was killed goes on in its append-only file, also when the end of it was not
// written.
func TestAHistoryGoesOnBehindACutOffEnd(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, AppendOnly()...)
	c, ctx := server.Client(), t.Context()
	fill(t, c)
	// It must not end before the server does: the end of it would be what is cut off.
	require.NoError(t, c.Set(ctx, "instance:heartbeat:b", "1/boot", 3*time.Second).Err())
	_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.HSet(ctx, "connections:registry", "lost", "a")
		return p.SAdd(ctx, "instance:devices:a", "lost").Err()
	})
	require.NoError(t, err)
	server.Kill()
	path := filepath.Join(server.Dir(), "appendonlydir", "appendonly.aof.1.incr.aof")
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()-3))
	server.Restart()
	require.NoError(t, c.SAdd(ctx, "instances:roster", "c").Err())
	require.Eventually(t, func() bool {
		h, err := Read(server.Dir())
		require.NoError(t, err)
		return !played(t, h).Exists("instance:heartbeat:b") // expired while nobody was there
	}, 30*time.Second, 10*time.Millisecond)
	h, err := Read(server.Dir())
	require.NoError(t, err)
	model := played(t, h)
	require.NotContains(t, model.Hashes[registry.Layout{}.Registry()], "lost")
	holds(t, server.Client(), model)
}
