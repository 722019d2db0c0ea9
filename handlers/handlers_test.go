package handlers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/handlers"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func get(h http.Handler) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Code, w.Body.String()
}

// service is a replica and its handlers.
type service struct {
	*rollcall.Replica
	ready, status, page http.Handler
	stop                func()
}

func start(t *testing.T, opt *redis.Options, id string) *service {
	t.Helper()
	r, err := rollcall.New(rollcall.Config{
		Redis: opt, Instance: id, Logger: slog.New(slog.DiscardHandler), Drain: time.Hour,
	})
	require.NoError(t, err)
	s := &service{Replica: r, ready: handlers.Ready(r), status: handlers.Status(r), page: handlers.Page(r)}
	code, why := get(s.ready)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "rollcall: no heartbeat has landed yet\n", why)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	s.stop = cancel
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return s
}

func TestAReplicaIsReadyFromItsFirstHeartbeatUntilItDrains(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := start(t, srv.Options(), "pod-1")
	waittest.Until(t, time.Millisecond, func() bool {
		code, _ := get(s.ready)
		return code == http.StatusOK
	})
	require.NotZero(t, s.Status().Registry.LastBeat)

	claim := s.Register("alice|phone", rollcall.Socket{Close: http.NoBody.Close})
	require.NoError(t, claim.Wait(t.Context()))
	srv.Stop()
	code, _ := get(s.ready)
	require.Equal(t, http.StatusOK, code, "Redis is away: no reason to take every replica out of service")
	srv.Cont()

	s.stop()
	waittest.Until(t, time.Millisecond, func() bool { return s.Status().Registry.Draining })
	code, why := get(s.ready)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, rollcall.ErrStopping.Error()+"\n", why)
	claim.Release()
}

func TestAReplicaThatRedisRefusesIsNotReady(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	require.NoError(t, srv.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	s := start(t, srv.Options(), "pod-1")
	waittest.Until(t, 10*time.Millisecond, func() bool { return s.Status().Registry.Refused != "" })
	code, why := get(s.ready)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, why, "rollcall: Redis refuses the heartbeat: ")
	require.Contains(t, why, "NOAUTH")
	code, text := get(s.page)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "Instances are not known now: ")
	require.NotContains(t, text, "secret")
}

func TestStatusAndPageShowAReplicaAndItsFleet(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := start(t, srv.Options(), "pod-1")
	claim := s.Register("alice|phone", rollcall.Socket{Close: http.NoBody.Close})
	defer claim.Release()
	require.NoError(t, claim.Wait(t.Context()))
	var keys guard.Layout
	require.NoError(t, srv.Client().SAdd(t.Context(), keys.Roster(), "<b>pod-2", "pod-3", "pod\u202e4").Err())
	require.NoError(t, srv.Client().Set(t.Context(), keys.Heartbeat("pod-3"), "1", time.Hour).Err())

	many := make([]any, 5000)
	for i := range many {
		many[i] = fmt.Sprint("z-", i)
	}
	require.NoError(t, srv.Client().SAdd(t.Context(), keys.Roster(), many...).Err())

	var got rollcall.Status
	waittest.Until(t, 10*time.Millisecond, func() bool {
		code, text := get(s.status)
		require.Equal(t, http.StatusOK, code)
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		return got.Janitor.Leading && !got.Janitor.Witness.LastTick.IsZero()
	})
	require.Equal(t, "pod-1", got.Registry.Instance)
	require.Equal(t, 1, got.Registry.Held)

	code, text := get(s.page)
	require.Equal(t, http.StatusOK, code)
	for _, has := range []string{
		"<h1>pod-1</h1>", "1 held, 0 not yet in Redis", "<dd>this replica</dd>", "begins in ",
		"<td>&lt;b&gt;pod-2<td>silent", "<td>pod-3<td>alive", `pod\u202e4`, "and 4004 more",
	} {
		require.Contains(t, text, has)
	}
	require.Less(t, len(text), 100_000)
}
