// Chat is a small chat service: users connect by WebSocket, each from several devices, to any of
// several replicas. Each device is a socket with the id "user|device". Redis has the replica of
// each, and a sorted set of these ids has the devices of a user.
//
//	POD_NAME=chat-0 go run . -redis 127.0.0.1:6379 -listen 127.0.0.1:8100
//	POD_NAME=chat-1 go run . -redis 127.0.0.1:6379 -listen 127.0.0.1:8101
//
//	GET  /connect?user=alice&device=phone  a WebSocket; "bob hello" sends hello to bob
//	GET  /where?user=alice                 her devices, and the replica of each
//	GET  /readyz, /rollcall, /metrics
//
// docs/embed.md shows the code between the marks "rollcall" and "rollcall: end"; a test compares
// them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/handlers"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// online is a sorted set of the ids of all sockets, each with score 0. ZRANGEBYLEX reads a user's.
const online = "chat:online"

func main() {
	redisAddr := flag.String("redis", "127.0.0.1:6379", "address of Redis")
	listen := flag.String("listen", "127.0.0.1:0", "address of this replica")
	beat := flag.Duration("heartbeat", 30*time.Second, "time between heartbeats")
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, log, *redisAddr, *listen, *beat); err != nil {
		log.Error("chat ends", "error", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, log *slog.Logger, redisAddr, listen string, beat time.Duration) error {
	call := min(beat/3, 3*time.Second) // a call of Redis must end before the next beat
	metrics := prometheus.NewRegistry()
	c := &chat{log: log, sockets: map[string]*socket{}, lost: make(chan struct{}, 1), every: 3 * beat}

	opt := &redis.Options{
		Addr:        redisAddr,
		DialTimeout: call, ReadTimeout: call, WriteTimeout: call, PoolTimeout: call,
		ContextTimeoutEnabled: true,
	}
	rdb := redis.NewClient(opt) // for the chat's own data
	defer rdb.Close()

	// rollcall: fleet
	entries := guard.Layout{Prefix: "chat:"}.Registry()
	set, err := orphan.New(orphan.Config{
		Client: rdb, Layout: guard.Layout{Prefix: "chat:"}, Interval: beat, Logger: log, Rules: []rules.Rule{{
			Name: "online", Delete: true, Members: &rules.Members{ZSet: online, As: "id"}, Grace: 3 * beat,
			KeepIf:     []rules.Sign{{Field: &rules.Field{Hash: entries, Field: "{id}"}}},
			UnlessLost: []rules.Reference{{Exists: entries}},
		}},
	})
	if err != nil {
		return err
	}
	replica, err := rollcall.New(rollcall.Config{
		Redis: opt, Prefix: "chat:", Instance: os.Getenv("POD_NAME"), Interval: beat, Sweeps: set.Sweeps(),
		OnReconciled: c.nudge, Namespace: "chat", Registerer: metrics, Logger: log,
	})
	if err != nil {
		return err
	}
	// rollcall: end
	c.rdb, c.replica = rdb, replica

	mux := http.NewServeMux()
	mux.HandleFunc("GET /connect", c.connect)
	mux.HandleFunc("GET /where", c.where)
	mux.Handle("GET /readyz", handlers.Ready(replica))
	mux.Handle("GET /rollcall", handlers.Page(replica))
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))

	g := pool.New().WithContext(ctx).WithCancelOnError()
	g.Go(replica.Run)
	g.Go(c.receive)
	g.Go(c.keep)
	g.Go(func(ctx context.Context) error {
		<-replica.Started()
		return c.listen(ctx, listen, mux)
	})
	return g.Wait()
}

// listen serves until ctx ends. replica.Run closes the sockets, and waits for their claims.
func (c *chat) listen(ctx context.Context, addr string, h http.Handler) error {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	c.log.Info("listening", "addr", ln.Addr().String())
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = srv.Close() })()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}
