package redistest_test

import (
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestTheLivesOfAServer(t *testing.T) {
	t.Parallel()
	var pid int
	var dir string
	t.Run("server", func(t *testing.T) {
		ctx := t.Context()
		s := redistest.Start(t, "--appendonly", "yes", "--maxmemory", "5mb", "--save", "77 1")
		o := s.Options()
		o.MaxRetries = -1
		c := redis.NewClient(o)
		defer c.Close()
		require.Equal(t, map[string]string{"save": "77 1"}, c.ConfigGet(ctx, "save").Val(), "the caller's wins")
		require.Equal(t, map[string]string{"maxmemory": "5242880"}, c.ConfigGet(ctx, "maxmemory").Val())
		require.NoError(t, c.Set(ctx, "k", "v", 0).Err())

		s.Stop()
		require.ErrorContains(t, c.WithTimeout(100*time.Millisecond).Ping(ctx).Err(), "timeout")
		s.Cont()
		require.NoError(t, s.Client().Ping(ctx).Err())
		s.Stop()
		addr, former := s.Addr(), s.PID()
		s.Kill() // although it is stopped
		require.ErrorIs(t, syscall.Kill(former, 0), syscall.ESRCH)
		s.Kill() // nothing to end

		s.Restart()
		require.Equal(t, addr, s.Addr())
		require.NotEqual(t, former, s.PID())
		require.Equal(t, "v", s.Client().Get(ctx, "k").Val())
		files, err := filepath.Glob(filepath.Join(s.Dir(), "appendonlydir", "*.aof"))
		require.NoError(t, err)
		require.NotEmpty(t, files)
		pid, dir = s.PID(), s.Dir()
	})
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "it goes with its test")
	require.NoDirExists(t, dir)
}

func TestByDefaultNothingIsPersisted(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	require.NoError(t, s.Client().Set(t.Context(), "k", "v", 0).Err())
	s.Restart()
	require.ErrorIs(t, s.Client().Get(t.Context(), "k").Err(), redis.Nil)
}

func TestTheSharedServerIsOneServer(t *testing.T) {
	t.Parallel()
	require.Equal(t, redistest.Shared(t).PID(), redistest.Shared(t).PID())
	require.NotEqual(t, redistest.Prefix(t), redistest.Prefix(t))
}

func TestWorldsRunsTheCasesOnBothServers(t *testing.T) {
	t.Parallel()
	var met []bool
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		met = append(met, w.Real)
		require.True(t, strings.HasSuffix(w.Prefix, ":"), w.Prefix)
		require.NotContains(t, w.Prefix, "/")

		ctx, key := t.Context(), w.Prefix+"k"
		require.NoError(t, w.Client.Set(ctx, key, "v", 0).Err())
		require.Equal(t, "v", redis.NewScript(`return redis.call('GET', KEYS[1])`).Run(ctx, w.Client, []string{key}).Val())
		require.NoError(t, w.Client.PExpire(ctx, key, 30*time.Millisecond).Err())
		require.Eventually(t, func() bool { return w.Client.Exists(ctx, key).Val() == 0 }, 5*time.Second, 5*time.Millisecond)

		second := redis.NewClient(w.Options)
		defer second.Close()
		require.NoError(t, second.Ping(ctx).Err())
	})
	require.Equal(t, []bool{true, false}, met)
}

func TestManyServersAtOnceFindPortsOfTheirOwn(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 5 {
		s := redistest.Start(t)
		require.False(t, seen[s.Addr()])
		seen[s.Addr()] = true
		require.NoError(t, s.Client().Set(context.Background(), "mine", s.PID(), 0).Err())
	}
	require.Len(t, seen, 5)
}
