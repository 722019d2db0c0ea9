package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/cmd/internal/tracing"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/partition"
	"github.com/rollcall-redis/rollcall/registry"
)

// Program is a program that sweeps, without sockets of its own. [Program.Serve] is its life.
type Program struct {
	Name string
	Base *Base
	// Fleet is of the keys that it sweeps. It is of one partition.
	Fleet *Fleet
	// NoRegistry leaves out what is about devices: the reverse index, and metrics of the registry.
	NoRegistry bool
	// Page is this program's part of the status page.
	Page string

	// The rest may be nil. Before runs once Redis' clients exist, After at the end.
	Before func(ctx context.Context, c *Core) error
	After  func(ctx context.Context) error
	Sweeps func() []janitor.Sweeper
	// Contends is called when the janitor begins and ends.
	Contends func(yes bool)
	Status   func(console.Status) console.Stated
	Answers  map[string]func() any
	Swept    func() func() map[string]any
}

// Core is what every program that sweeps consists of.
type Core struct {
	Clients   *connect.Clients
	Registry  *partition.Registry // for the heartbeat
	Janitor   *partition.Janitor
	HTTP      *console.HTTP
	Log       *slog.Logger
	Metrics   *prometheus.Registry
	program   Program
	inspector *connect.Inspector
	files     *reload.Watcher
	traces    *tracing.Tracing
	began     time.Time
	draining  atomic.Bool
}

// Serve returns nil after ctx ended and all has stopped within the grace.
func (p Program) Serve(ctx context.Context, log *slog.Logger) (err error) {
	b, f := p.Base, p.Fleet
	c := &Core{program: p, Log: log, Metrics: Metrics(), began: time.Now()}
	c.traces = tracing.Start(ctx, tracing.Config{Program: p.Name, Version: cli.Version(), Instance: b.InstanceID, Logger: log})
	defer c.traces.Close()
	deadline := ControlDeadline(f.HeartbeatInterval, f.HeartbeatTTL, f.LeaseTTL)
	if c.Clients, err = connect.Open(ctx, &b.Redis, deadline); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Clients.Close()) }()
	if p.After != nil {
		defer func() { err = errors.Join(err, p.After(ctx)) }()
	}
	if c.inspector, err = connect.Inspect(ctx, c.Clients, log); err != nil {
		return err
	}
	if p.Before != nil {
		if err := p.Before(ctx, c); err != nil {
			return err
		}
	}
	if err := c.assemble(ctx); err != nil {
		return b.Beside(ctx, err, p.Name+" %s")
	}
	defer c.HTTP.Close()
	return c.run(ctx)
}

// assemble opens the HTTP listener last, so that an address in use is known before anything has
// begun.
func (c *Core) assemble(ctx context.Context) (err error) {
	p, b, f := c.program, c.program.Base, c.program.Fleet
	config := registry.Config{
		Client: c.Clients.Data, Control: c.Clients.Control, Instance: b.InstanceID, Unique: b.Unique,
		Layout: f.Layout(), HeartbeatInterval: f.HeartbeatInterval, HeartbeatTTL: f.HeartbeatTTL,
		Drain: b.ShutdownGrace * 3 / 10, NoReverseIndex: p.NoRegistry, Logger: c.Log,
		Registerer: c.Metrics, Namespace: f.Namespace,
	}
	if p.NoRegistry {
		config.Registerer = nil
	}
	// A fleet of another number of partitions is refused, and more than 32 replicas cost no more.
	if c.Registry, err = partition.NewRegistry(config, 1); err != nil {
		return err
	}
	var sweeps []janitor.Sweeper
	if p.Sweeps != nil {
		sweeps = p.Sweeps()
	}
	c.Janitor, err = partition.NewJanitor(janitor.Config{
		Client: c.Clients.Data, Control: c.Clients.Control, Sweeps: sweeps,
		Interval: f.Every, LeaseTTL: f.LeaseTTL, RedisShare: f.RedisShare, DryRun: f.DryRun,
		ScanCount: f.ScanCount, DeleteBatch: f.DeleteBatch, ExistsConcurrency: f.Exists,
		StartSpan: c.traces.StartSpan(), Logger: c.Log, Registerer: c.Metrics,
	}, c.Registry)
	if err != nil {
		return err
	}
	tokens, files, err := b.Tokens()
	if err != nil {
		return err
	}
	c.files, err = reload.New(reload.Config{
		Files: append(files, c.Clients.Files...), Logger: c.Log, Registerer: c.Metrics,
	})
	if err != nil {
		return err
	}
	c.HTTP, err = console.ListenHTTP(ctx, console.HTTPConfig{
		Addr: b.HTTPAddr, Hosts: b.HTTPHosts, Tokens: tokens, Janitor: c.Janitor,
		Program: p.Name, Client: c.Clients.Data, Layout: f.Layout(), Status: c.status, Page: p.Page,
		Answers: p.Answers, Swept: p.Swept, Metrics: c.Metrics, Logger: c.Log,
	})
	return err
}

// run stops every part within its share of the grace. The janitor joins its passes and releases the
// lease (4/10). The registry sends heartbeats until then, and deregisters (2/10). HTTP shows all of
// that, and ends last.
func (c *Core) run(ctx context.Context) error {
	parts := NewParts(ctx, c.program.Base.ShutdownGrace, c.Log)
	parts.Go("http", c.HTTP.Run)
	parts.Go("registry", c.Registry.Partitions()[0].Run)
	parts.Go("undivided", c.undivided)
	parts.Go("inspector", c.inspector.Run)
	parts.Go("files", c.files.Run)
	parts.Go("janitor", Accepted(c.Registry.Status, func(ctx context.Context) error {
		if contends := c.program.Contends; contends != nil {
			contends(true)
			defer contends(false)
		}
		return c.Janitor.Run(ctx)
	}))
	parts.Wait()
	c.draining.Store(true)
	parts.Stop(4, "janitor", "inspector", "files", "undivided")
	if left := parts.Stop(6, "registry"); len(left) > 0 {
		// No context ends a call that waits for a silent Redis; this does.
		_ = c.Clients.Data.Close()
	}
	parts.Stop(9)
	parts.Stop(10, "http")
	return parts.End()
}

// undivided returns an error once the fleet has partitions. Unlike Run of partition.Registry it
// writes no number: after Redis has lost the fleet's, those with sockets restore it.
func (c *Core) undivided(ctx context.Context) error {
	layout := c.Registry.Layout()
	for pause := time.Duration(0); layout.OneSlot() && wait.For(ctx, pause); {
		pause = c.program.Fleet.HeartbeatInterval
		call, cancel := context.WithTimeout(ctx, pause)
		number, err := c.Clients.Control.Get(call, layout.Partitions()).Result()
		cancel()
		if err == nil && number != "1" { // others log that Redis is down
			return fmt.Errorf("%w: %s has %q, and this program sweeps a fleet of one",
				partition.ErrPartitionsDiffer, layout.Partitions(), number)
		}
	}
	return nil
}

// status asks nobody.
func (c *Core) status() console.Stated {
	st := console.Status{
		Instance: c.Registry.Instance(), Version: cli.Version(),
		Time: time.Now(), Started: c.began, HTTPAddr: c.HTTP.Addr(),
		Admin: c.program.Base.AdminToken != "", Files: c.files.Status(),
		Registry: c.Registry.Status(), Janitor: c.Janitor.Status(),
	}
	st.Judge("replica", c.inspector, c.draining.Load())
	if c.program.Status != nil {
		return c.program.Status(st)
	}
	return st
}
