package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/cleanup/internal/cycles"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/cmd/internal/tracing"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
	"github.com/rollcall-redis/rollcall/registry"
)

type worker struct {
	settings *settings
	log      *slog.Logger
	began    time.Time
	traces   *tracing.Tracing

	clients   *connect.Clients
	inspector *connect.Inspector
	http      *console.HTTP
	source    *source
	registry  *registry.Registry // without devices: for the heartbeat
	set       *orphan.Set
	cycles    *cycles.Cycles
	janitor   *janitor.Janitor
	files     *reload.Watcher

	contends atomic.Bool // the janitor runs: it contends for the lease, or leads
	draining atomic.Bool
}

// mostMemory makes the runtime collect garbage more often above it: a pass over large values leaves
// much.
const mostMemory = 96 << 20

// serve is a worker's whole life. It returns nil if ctx ended and everything stopped within the
// grace.
func serve(ctx context.Context, s *settings, log *slog.Logger) (err error) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(mostMemory)
	}
	w := &worker{settings: s, log: log, began: time.Now()}
	w.traces = tracing.Start(ctx, tracing.Config{
		Program: "cleanup", Version: cli.Version(), Instance: s.InstanceID, Logger: log,
	})
	defer w.traces.Close()
	if w.clients, err = connect.Open(ctx, &s.Redis, s.controlDeadline()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.clients.Close()) }()
	if w.source, err = openSource(s); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.source.close(ctx)) }()
	if err := w.assemble(ctx); err != nil {
		return s.Beside(ctx, err, "cleanup %s")
	}
	defer w.http.Close()
	return w.run(ctx)
}

// assemble asks Redis once whether it is usable, if it answers. The HTTP listener comes last, so
// that an address in use is found before anything has begun.
func (w *worker) assemble(ctx context.Context) (err error) {
	s, log := w.settings, w.log
	if w.inspector, err = connect.Inspect(ctx, w.clients, log); err != nil {
		return err
	}
	for _, text := range rules.Warnings(s.rules) {
		log.Warn("a rule could be safer", "warning", text)
	}
	metrics := program.Metrics()
	// No Registerer: the registry's metrics are about devices. So are its two sweeps, which cost a
	// small call per heartbeat interval, and one per interval.
	w.registry, err = registry.New(registry.Config{
		Client: w.clients.Data, Control: w.clients.Control, Instance: s.InstanceID, Unique: s.Unique,
		Layout:            s.layout(),
		HeartbeatInterval: s.heartbeatInterval, HeartbeatTTL: s.heartbeatTTL,
		Drain: s.ShutdownGrace * 3 / 10, NoReverseIndex: true, Logger: log,
	})
	if err != nil {
		return err
	}
	w.set, err = orphan.New(orphan.Config{
		Rules: s.rules, Client: w.clients.Data, Source: w.source.orNil(), Layout: s.layout(),
		Interval: s.interval, Logger: log, Registerer: metrics,
		// w.cycles is set before the first pass.
		Passed: func(r orphan.Result) { w.cycles.Passed(r) },
	})
	if err != nil {
		return err
	}
	w.cycles, err = cycles.New(cycles.Config{
		Rules: s.rules, Removed: w.set.Stats, Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	w.janitor, err = janitor.New(janitor.Config{
		Client: w.clients.Data, Control: w.clients.Control, Registry: w.registry,
		Interval: s.interval, LeaseTTL: s.leaseTTL, RedisShare: s.redisShare, DryRun: s.dryRun,
		Sweeps: w.set.Sweeps(), StartSpan: w.traces.StartSpan(), Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	tokens, files, err := s.Tokens()
	if err != nil {
		return err
	}
	w.files, err = reload.New(reload.Config{
		Files: append(files, w.clients.Files...), Logger: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	w.http, err = console.ListenHTTP(ctx, console.HTTPConfig{
		Addr: s.HTTPAddr, Hosts: s.HTTPHosts, Tokens: tokens, Janitor: w.janitor,
		Program: "cleanup", Client: w.clients.Data, Layout: w.registry.Layout(),
		Status: func() console.Stated { return w.status() }, Page: pageText,
		Answers: map[string]func() any{"/api/v1/stats": func() any { return w.cycles.Stats(w.contends.Load()) }},
		Swept:   w.swept, Metrics: metrics, Logger: log,
	})
	return err
}

// swept adds to the answer of a requested sweep what it has removed, and what will follow.
func (w *worker) swept() func() map[string]any {
	before, began := w.set.Stats(), time.Now()
	return func() map[string]any {
		answer := cycles.Answer(w.set.Asked(began))
		removed, keys := w.cycles.Since(before)
		answer["removed"], answer["keysRemoved"], answer["totalKeysRemoved"] = removed, keys, keys
		return answer
	}
}

// run stops every part within its share of the grace. The janitor joins its passes and releases the
// lease (4/10). The registry sends heartbeats until then, and deregisters (2/10). HTTP shows all of
// that, and ends last.
func (w *worker) run(ctx context.Context) error {
	parts := program.NewParts(ctx, w.settings.ShutdownGrace, w.log)
	parts.Go("http", w.http.Run)
	parts.Go("registry", w.registry.Run)
	parts.Go("inspector", w.inspector.Run)
	parts.Go("files", w.files.Run)
	parts.Go("janitor", program.Accepted(w.registry.Status, func(ctx context.Context) error {
		w.contends.Store(true)
		defer w.contends.Store(false)
		return w.janitor.Run(ctx)
	}))

	parts.Wait()
	w.draining.Store(true)
	parts.Stop(4, "janitor", "inspector", "files")
	if left := parts.Stop(6, "registry"); len(left) > 0 {
		// No context ends a call that waits for a silent Redis. Closing the client does.
		_ = w.clients.Data.Close()
	}
	parts.Stop(9)
	parts.Stop(10, "http")
	return parts.End()
}
