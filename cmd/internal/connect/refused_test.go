package connect

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

func accepted(t *testing.T, c *Clients) {
	t.Helper()
	waittest.Until(t, 10*time.Millisecond, func() bool { return c.Data.Set(t.Context(), "k", 1, 0).Err() == nil })
}

func TestARefusedLoginIsTriedOnceASecondHoweverManyAsk(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	require.NoError(t, admin.ACLSetUser(t.Context(), "app", "on", ">right", "~*", "+@all").Err())
	clients := clientsOf(t, "redis://app:wrong@"+server.Addr())
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

	require.NoError(t, admin.ACLSetUser(t.Context(), "app", ">wrong").Err())
	accepted(t, clients)
}

func TestAServerWithAllItsClientsIsTriedOnceASecond(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client().Conn()
	defer func() { require.NoError(t, admin.Close()) }()
	require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "1").Err())
	clients := clientsOf(t, "redis://"+server.Addr())
	began := time.Now()
	for range 300 {
		require.Error(t, clients.Data.Set(t.Context(), "k", 1, 0).Err())
	}
	stats, err := admin.InfoMap(t.Context(), "stats").Result()
	require.NoError(t, err)
	rejected, err := strconv.Atoi(stats["Stats"]["rejected_connections"])
	require.NoError(t, err)
	require.LessOrEqual(t, rejected, 10+int(time.Since(began)/refusedPause))
	require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "100").Err())
	accepted(t, clients)
}

func TestAClientWithoutAPasswordIsAcceptedOnceNoneIsNeeded(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client()
	require.NoError(t, admin.ACLSetUser(t.Context(), "default", ">secret").Err()) // this connection has logged in
	clients := clientsOf(t, "redis://"+server.Addr())
	for range 50 {
		require.True(t, redis.IsAuthError(clients.Data.Set(t.Context(), "k", 1, 0).Err()))
	}
	require.NoError(t, admin.ACLSetUser(t.Context(), "default", "nopass").Err())
	accepted(t, clients)
}
