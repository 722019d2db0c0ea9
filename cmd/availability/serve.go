package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/cmd/internal/tracing"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

type replica struct {
	settings *settings
	log      *slog.Logger
	began    time.Time
	traces   *tracing.Tracing
	metrics  *prometheus.Registry

	clients   *connect.Clients
	inspector *connect.Inspector
	http      *console.HTTP
	database  *database.Database
	tokens    *token.Verifier
	registry  *registry.Registry // without devices: for the heartbeat
	mirror    *availability.Mirror
	api       *api.API
	janitor   *janitor.Janitor
	files     *reload.Watcher

	draining atomic.Bool
}

// serve is a replica's whole life. It returns nil if ctx ended and everything stopped within the
// grace.
func serve(ctx context.Context, s *settings, log *slog.Logger) (err error) {
	r := &replica{settings: s, log: log, began: time.Now(), metrics: program.Metrics()}
	r.traces = tracing.Start(ctx, tracing.Config{
		Program: "availability", Version: cli.Version(), Instance: s.InstanceID, Logger: log,
	})
	defer r.traces.Close()
	if r.clients, err = connect.Open(ctx, &s.Redis, s.controlDeadline()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.clients.Close()) }()
	if err := s.tagged(); err != nil { // only now is it known whether an address is a Cluster's
		return err
	}
	password, files, err := s.databasePassword()
	if err != nil {
		return err
	}
	r.database, err = database.Open(ctx, database.Config{
		URL: string(s.databaseURL), Password: password, Migrate: s.migrate == "on", Logger: log,
		Registerer: r.metrics,
	})
	if err != nil {
		return err
	}
	defer r.database.Close()
	if err := r.assemble(ctx, append(files, r.clients.Files...)); err != nil {
		return s.Beside(ctx, err, "availability %s", [2]string{"OPERATOR_ADDR", s.operatorAddr})
	}
	defer r.http.Close()
	return r.run(ctx)
}

// mostConns limits connections to HTTP_ADDR, of about 20 kB each.
const mostConns = 4096

// assemble asks Redis once whether it is usable, if it answers. The HTTP listener comes last, so
// that an address in use is found before anything has begun. The given files are watched.
func (r *replica) assemble(ctx context.Context, files []reload.Watched) (err error) {
	s, log := r.settings, r.log
	if r.inspector, err = connect.Inspect(ctx, r.clients, log); err != nil {
		return err
	}
	secrets, secretFiles, err := s.secrets()
	if err != nil {
		return err
	}
	r.tokens, err = token.New(ctx, token.Config{
		Secrets: secrets, JWKS: string(s.jwks), Audience: s.jwtAudience, Issuer: s.jwtIssuer, Logger: log,
	})
	if err != nil {
		return err
	}
	metrics := r.metrics
	// No Registerer: the registry's metrics are about devices.
	r.registry, err = registry.New(registry.Config{
		Client: r.clients.Data, Control: r.clients.Control, Instance: s.InstanceID, Unique: s.Unique,
		Layout:            s.layout(),
		HeartbeatInterval: s.heartbeatInterval, HeartbeatTTL: s.heartbeatTTL,
		Drain: s.ShutdownGrace * 3 / 10, NoReverseIndex: true, Logger: log,
	})
	if err != nil {
		return err
	}
	r.mirror, err = availability.New(availability.Config{
		Source: r.database, Client: r.clients.Data, Control: r.clients.Control, Layout: s.layout(),
		ReconcileInterval: s.reconcileInterval, OfflineInterval: s.offlineInterval,
		HeartbeatInterval: s.mirrorInterval, Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	r.janitor, err = janitor.New(janitor.Config{
		Client: r.clients.Data, Control: r.clients.Control, Registry: r.registry,
		LeaseTTL: s.leaseTTL, RedisShare: s.redisShare, Sweeps: r.mirror.Sweeps(),
		StartSpan: r.traces.StartSpan(), Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	r.api, err = api.New(api.Config{
		Mirror: r.mirror, Source: r.database, Endings: s.endings, Tokens: r.tokens, Logger: log,
		Registerer: metrics,
	})
	if err != nil {
		return err
	}
	tokens, tokenFiles, err := s.Tokens()
	if err != nil {
		return err
	}
	r.files, err = reload.New(reload.Config{
		Files: slices.Concat(files, secretFiles, tokenFiles), Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	routes := map[string]http.Handler{}
	for _, pattern := range r.api.Patterns() {
		routes[pattern] = r.traces.Handler(r.api)
	}
	r.http, err = console.ListenHTTP(ctx, console.HTTPConfig{
		Addr: s.HTTPAddr, OperatorAddr: s.operatorAddr, Hosts: s.HTTPHosts, Tokens: tokens, Janitor: r.janitor,
		Routes: routes, MaxConns: mostConns, Program: "availability", Client: r.clients.Data, Layout: r.registry.Layout(),
		Status: func() console.Stated { return r.status() }, Page: pageText,
		Metrics: metrics, Logger: log,
	})
	return err
}

// seedWait is how long requests wait for the first seeding before reads fall back.
const seedWait = 5 * time.Second

// run stops every part within its share of the grace. HTTP ends first, because its requests need
// all the others. The janitor joins its passes and releases the lease. The registry sends
// heartbeats until then, and deregisters last.
func (r *replica) run(ctx context.Context) error {
	parts := program.NewParts(ctx, r.settings.ShutdownGrace, r.log)
	parts.Go("tokens", r.tokens.Run)
	parts.Go("database", r.database.Run)
	parts.Go("registry", r.registry.Run)
	parts.Go("inspector", r.inspector.Run)
	parts.Go("files", r.files.Run)
	parts.Go("mirror", r.database.WhenTried(r.mirror.Run))
	parts.Go("janitor", program.Accepted(r.registry.Status, r.database.WhenTried(r.janitor.Run)))
	parts.Go("counts", r.database.WhenTried(r.api.Run))
	parts.Go("http", func(ctx context.Context) error {
		r.awaitSeeding(ctx)
		return r.http.Run(ctx)
	})

	parts.Wait()
	r.draining.Store(true)
	parts.Stop(4, "janitor", "inspector", "files", "counts")
	parts.Stop(6, "http")
	parts.Stop(7, "mirror", "database", "tokens")
	if left := parts.Stop(9, "registry"); len(left) > 0 {
		// No context ends a call that waits for a silent Redis. Closing the client does.
		_ = r.clients.Data.Close()
	}
	parts.Stop(10)
	return parts.End()
}

func (r *replica) awaitSeeding(ctx context.Context) {
	wait, cancel := context.WithTimeout(ctx, seedWait)
	defer cancel()
	select {
	case <-r.mirror.Ready():
	case <-wait.Done():
		if ctx.Err() == nil {
			h := r.mirror.Health()
			r.log.Warn("serving before the mirror is whole: reads fall back to PostgreSQL",
				"waited", seedWait, "mirror_whole", h.Whole, "feed", h.FeedError)
		}
	}
}
