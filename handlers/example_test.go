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

	"github.com/rollcall-redis/rollcall/handlers"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// What docs/embedding.md shows; a test there compares the two.

func replica(listen func(ctx context.Context, mux *http.ServeMux, reg *registry.Registry) error) error {
	// page: replica
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	redis.SetLogger(redisLog{}) // else go-redis writes lines of its own to standard error
	opt, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	opt.MaxRetries, opt.ContextTimeoutEnabled = -1, true
	rdb := redis.NewClient(opt)
	defer rdb.Close()
	ctl := redis.NewClient(lease.Options(opt))
	defer ctl.Close()

	metrics := prometheus.NewRegistry()
	reg, err := registry.New(registry.Config{
		Client: rdb, Control: ctl, Instance: os.Getenv("POD_NAME"), Registerer: metrics,
	})
	if err != nil {
		return err
	}
	jan, err := janitor.New(janitor.Config{Client: rdb, Control: ctl, Registry: reg, Registerer: metrics})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /readyz", handlers.Ready(reg))
	mux.Handle("GET /rollcall", handlers.Page(reg, jan))
	mux.Handle("GET /rollcall/status", handlers.Status(reg, jan))
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))

	g := pool.New().WithContext(ctx).WithCancelOnError()
	g.Go(reg.Run)
	g.Go(jan.Run)
	g.Go(func(ctx context.Context) error {
		<-reg.Started() // the first heartbeat has landed, or Redis did not answer
		return listen(ctx, mux, reg)
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
