package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/cmd/internal/tracing"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/partition"
	"github.com/rollcall-redis/rollcall/registry"
)

//go:embed page.html
var pageText string

type replica struct {
	settings *settings
	log      *slog.Logger
	began    time.Time
	traces   *tracing.Tracing

	clients   *connect.Clients
	inspector *connect.Inspector
	http      *console.HTTP
	registry  *partition.Registry // for the heartbeat
	janitor   *partition.Janitor
	files     *reload.Watcher

	draining atomic.Bool
}

// serve returns nil after ctx ended and all has stopped within the grace.
func serve(ctx context.Context, s *settings, log *slog.Logger) (err error) {
	r := &replica{settings: s, log: log, began: time.Now()}
	r.traces = tracing.Start(ctx, tracing.Config{
		Program: "janitor", Version: cli.Version(), Instance: s.InstanceID, Logger: log,
	})
	defer r.traces.Close()
	if r.clients, err = connect.Open(ctx, &s.Redis, s.controlDeadline()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.clients.Close()) }()
	if err := r.assemble(ctx); err != nil {
		return s.Beside(ctx, err, "janitor %s")
	}
	defer r.http.Close()
	return r.run(ctx)
}

// assemble opens the HTTP listener last, so that an address in use is known before anything has
// begun.
func (r *replica) assemble(ctx context.Context) (err error) {
	s, log := r.settings, r.log
	if r.inspector, err = connect.Inspect(ctx, r.clients, log); err != nil {
		return err
	}
	metrics := program.Metrics()
	// A fleet of another number is refused, and more than 32 replicas cost no more.
	r.registry, err = partition.NewRegistry(registry.Config{
		Client: r.clients.Data, Control: r.clients.Control, Instance: s.InstanceID, Unique: s.Unique,
		Layout: s.layout(), HeartbeatInterval: s.heartbeatInterval, HeartbeatTTL: s.heartbeatTTL,
		Drain: s.ShutdownGrace * 3 / 10, Logger: log, Registerer: metrics,
	}, 1)
	if err != nil {
		return err
	}
	r.janitor, err = partition.NewJanitor(janitor.Config{
		Client: r.clients.Data, Control: r.clients.Control,
		Interval: s.interval, LeaseTTL: s.leaseTTL, RedisShare: s.redisShare, DryRun: s.dryRun,
		StartSpan: r.traces.StartSpan(), Logger: log, Registerer: metrics,
	}, r.registry)
	if err != nil {
		return err
	}
	tokens, files, err := s.Tokens()
	if err != nil {
		return err
	}
	r.files, err = reload.New(reload.Config{
		Files: append(files, r.clients.Files...), Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	r.http, err = console.ListenHTTP(ctx, console.HTTPConfig{
		Addr: s.HTTPAddr, Hosts: s.HTTPHosts, Tokens: tokens, Janitor: r.janitor,
		Program: "janitor", Client: r.clients.Data, Layout: r.registry.Layout(),
		Status: func() console.Stated { return r.status() }, Page: pageText,
		Metrics: metrics, Logger: log,
	})
	return err
}

// run stops every part within its share of the grace. The janitor joins its passes and releases the
// lease (4/10). The registry sends heartbeats until then, and deregisters (2/10). HTTP shows all of
// that, and ends last.
func (r *replica) run(ctx context.Context) error {
	parts := program.NewParts(ctx, r.settings.ShutdownGrace, r.log)
	parts.Go("http", r.http.Run)
	parts.Go("registry", r.registry.Partitions()[0].Run)
	parts.Go("undivided", r.undivided)
	parts.Go("inspector", r.inspector.Run)
	parts.Go("files", r.files.Run)
	parts.Go("janitor", program.Accepted(r.registry.Status, r.janitor.Run))

	parts.Wait()
	r.draining.Store(true)
	parts.Stop(4, "janitor", "inspector", "files", "undivided")
	if left := parts.Stop(6, "registry"); len(left) > 0 {
		// No context ends a call that waits for a silent Redis; this does.
		_ = r.clients.Data.Close()
	}
	parts.Stop(9)
	parts.Stop(10, "http")
	return parts.End()
}

// undivided returns an error once the fleet has partitions. Unlike Run of
// partition.Registry it writes no number: after Redis has lost the fleet's, those with sockets
// restore it.
func (r *replica) undivided(ctx context.Context) error {
	layout := r.registry.Layout()
	for pause := time.Duration(0); layout.OneSlot() && wait.For(ctx, pause); {
		pause = r.settings.heartbeatInterval
		call, cancel := context.WithTimeout(ctx, pause)
		number, err := r.clients.Control.Get(call, layout.Partitions()).Result()
		cancel()
		if err == nil && number != "1" { // others log that Redis is down
			return fmt.Errorf("%w: %s has %q, and this program sweeps a fleet of one",
				partition.ErrPartitionsDiffer, layout.Partitions(), number)
		}
	}
	return nil
}

// status asks nobody.
func (r *replica) status() console.Status {
	st := console.Status{
		Instance: r.registry.Instance(), Version: cli.Version(),
		Time: time.Now(), Started: r.began, HTTPAddr: r.http.Addr(),
		Admin: r.settings.AdminToken != "", Files: r.files.Status(),
		Registry: r.registry.Status(), Janitor: r.janitor.Status(),
	}
	st.Judge("replica", r.inspector, r.draining.Load())
	return st
}
