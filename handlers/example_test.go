package handlers_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/handlers"
)

// What docs/embed.md shows; a test there compares the two.

func serve(listen func(ctx context.Context, mux *http.ServeMux, replica *rollcall.Replica) error) error {
	// page: replica
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	redis.SetLogger(redisLog{}) // else go-redis writes lines of its own to standard error
	opt, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	metrics := prometheus.NewRegistry()
	replica, err := rollcall.New(rollcall.Config{
		Redis: opt, Instance: os.Getenv("POD_NAME"), Registerer: metrics,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", handlers.Ready(replica))
	mux.Handle("GET /rollcall", handlers.Page(replica))
	mux.Handle("GET /rollcall/status", handlers.Status(replica))
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))

	g := pool.New().WithContext(ctx).WithCancelOnError()
	g.Go(replica.Run)
	g.Go(func(ctx context.Context) error {
		<-replica.Started() // the first heartbeat has landed, or Redis did not answer
		return listen(ctx, mux, replica)
	})
	return g.Wait()
	// page: end
}

// page: log
type redisLog struct{}

func (redisLog) Printf(_ context.Context, format string, args ...any) {
	slog.Debug("go-redis: " + strings.TrimSpace(fmt.Sprintf(format, args...)))
}

// page: end
