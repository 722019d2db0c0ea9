package handlers_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/handlers"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/partition"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestMain(m *testing.M) { redistest.Main(m) }

var (
	_ handlers.Registry = (*partition.Registry)(nil)
	_ handlers.Janitor  = (*partition.Janitor)(nil)
)

func get(h http.Handler) (int, string) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Code, w.Body.String()
}

// service is a replica and its handlers.
type service struct {
	ready, status, page http.Handler
	reg                 *registry.Registry
	stop                func()
}

func start(t *testing.T, opt *redis.Options, id string) *service {
	t.Helper()
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	log := slog.New(slog.DiscardHandler)
	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl, Instance: id, Logger: log, Drain: time.Hour})
	require.NoError(t, err)
	jan, err := janitor.New(janitor.Config{Client: rdb, Control: ctl, Registry: reg, Logger: log})
	require.NoError(t, err)
	s := &service{
		ready: handlers.Ready(reg), status: handlers.Status(reg, jan), page: handlers.Page(reg, jan), reg: reg,
	}
	code, why := get(s.ready)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "starting: no heartbeat has landed yet\n", why)
	ctx, cancel := context.WithCancel(context.Background())
	running := pool.New().WithErrors()
	running.Go(func() error { return reg.Run(ctx) })
	running.Go(func() error { return jan.Run(ctx) })
	s.stop = cancel
	t.Cleanup(func() {
		cancel()
		require.NoError(t, running.Wait())
		require.NoError(t, rdb.Close())
		require.NoError(t, ctl.Close())
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
	require.NotZero(t, s.reg.Status().LastBeat)

	claim := s.reg.Register("alice|phone")
	require.NoError(t, claim.Wait(t.Context()))
	srv.Stop()
	code, _ := get(s.ready)
	require.Equal(t, http.StatusOK, code, "Redis is away: no reason to take every replica out of service")
	srv.Cont()

	s.stop()
	waittest.Until(t, time.Millisecond, func() bool { return s.reg.Status().Draining })
	code, why := get(s.ready)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "draining: this replica stops\n", why)
	claim.Release()
}

func TestAReplicaThatRedisRefusesIsNotReady(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	require.NoError(t, srv.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	s := start(t, srv.Options(), "pod-1")
	waittest.Until(t, 10*time.Millisecond, func() bool { return s.reg.Status().Refused != "" })
	code, why := get(s.ready)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Contains(t, why, "refused: Redis does not accept this replica: ")
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
	claim := s.reg.Register("alice|phone")
	defer claim.Release()
	require.NoError(t, claim.Wait(t.Context()))
	keys := s.reg.Layout()
	require.NoError(t, srv.Client().SAdd(t.Context(), keys.Roster(), "<b>pod-2", "pod-3").Err())
	require.NoError(t, srv.Client().Set(t.Context(), keys.Heartbeat("pod-3"), "1", time.Hour).Err())

	var got struct {
		Registry registry.Status
		Janitor  janitor.Status
	}
	waittest.Until(t, 10*time.Millisecond, func() bool {
		code, text := get(s.status)
		require.Equal(t, http.StatusOK, code)
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		return got.Janitor.Leading && !got.Janitor.Witness.LastTick.IsZero()
	})
	require.Equal(t, "pod-1", got.Registry.Instance)
	require.Equal(t, 1, got.Registry.Devices)

	code, text := get(s.page)
	require.Equal(t, http.StatusOK, code)
	for _, has := range []string{
		"<h1>pod-1</h1>", "1 held, 0 not yet in Redis", "<dd>this replica</dd>", "begins in ",
		"<td>&lt;b&gt;pod-2<td>silent", "<td>pod-3<td>alive",
	} {
		require.Contains(t, text, has)
	}
}
