package connect

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

func TestARefusedLoginIsTriedOnceASecondHoweverManyAsk(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	require.NoError(t, admin.ACLSetUser(t.Context(), "app", "on", ">right", "~*", "+@all").Err())
	var target Redis
	require.NoError(t, target.Parse("redis://app:wrong@"+server.Addr()))
	clients, err := Open(t.Context(), &target, time.Second)
	require.NoError(t, err)
	defer func() { require.NoError(t, clients.Close()) }()
	began := time.Now()
	p := pool.New().WithMaxGoroutines(20)
	for i := range 600 {
		client := []redis.UniversalClient{clients.Data, clients.Control, clients.Blocking}[i%3]
		p.Go(func() {
			require.True(t, redis.IsAuthError(client.Set(context.Background(), "k", 1, 0).Err()))
		})
	}
	p.Wait()
	log, err := admin.ACLLog(t.Context(), 1).Result()
	require.NoError(t, err)
	// Those that began before the first answer, and one a second.
	require.LessOrEqual(t, log[0].Count, int64(25+time.Since(began)/refusedPause))

	_, err = clients.Data.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "k"); return nil })
	require.True(t, redis.IsAuthError(err))
	require.NoError(t, admin.ACLSetUser(t.Context(), "app", ">wrong").Err())
	waittest.Until(t, 10*time.Millisecond, func() bool { return clients.Data.Set(t.Context(), "k", 1, 0).Err() == nil })
}

// Without a password a connection opens, and Redis refuses what it is asked.
func TestAServerThatNoLongerWantsAPasswordIsUsedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	require.NoError(t, admin.Ping(t.Context()).Err()) // it stays connected
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "x").Err())
	var target Redis
	require.NoError(t, target.Parse("redis://"+server.Addr()))
	clients, err := Open(t.Context(), &target, time.Second)
	require.NoError(t, err)
	defer func() { require.NoError(t, clients.Close()) }()
	p := pool.New().WithMaxGoroutines(20)
	for range 100 {
		p.Go(func() { require.True(t, redis.IsAuthError(clients.Data.Set(context.Background(), "k", 1, 0).Err())) })
	}
	p.Wait()
	mend := redis.NewClient(&redis.Options{Addr: server.Addr(), Password: "x"})
	defer func() { require.NoError(t, mend.Close()) }()
	require.NoError(t, mend.ConfigSet(t.Context(), "requirepass", "").Err())
	waittest.Until(t, 10*time.Millisecond, func() bool { return clients.Data.Set(t.Context(), "k", 1, 0).Err() == nil })
	for range 50 { // nothing in the pool is left of the time before
		require.NoError(t, clients.Data.Set(t.Context(), "k", 1, 0).Err())
	}
}
