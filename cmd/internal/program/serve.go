package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/reload"
	"github.com/rollcall-redis/rollcall/cmd/internal/tracing"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// Program is a program that serves. [Program.Serve] is its life.
type Program struct {
	Name  string
	Base  *Base
	Fleet *Fleet
	Page  string // its part of the status page
	// NoRegistry leaves out what is about devices: the reverse index, and metrics of the registry.
	NoRegistry bool
	// NoIndex leaves out the reverse index.
	NoIndex bool

	// The rest may be nil. Before runs once Redis' clients exist, After at the end, Made when all
	// but HTTP has been made.
	Before func(ctx context.Context, c *Core) error
	After  func(ctx context.Context) error
	Made   func(ctx context.Context, c *Core) error
	Sweeps func(c *Core) []janitor.Sweeper
	// Around wraps what these parts run.
	Around map[string]func(Run) Run
	Parts  func() []Part
	Status func(console.Status) console.Stated
	// HTTP completes what the console serves.
	HTTP func(*console.HTTPConfig)
	// HTTPStops is after how many tenths of the grace; 0: last.
	HTTPStops int
}

// Core is what every program consists of.
type Core struct {
	Clients  *connect.Clients
	Registry *partition.Registry
	Janitor  *partition.Janitor
	HTTP     *console.HTTP
	Log      *slog.Logger
	Metrics  *prometheus.Registry
	Traces   *tracing.Tracing
	Files    []reload.Watched // of the program's own settings
	program  Program
	files    *reload.Files
	began    time.Time
	draining atomic.Bool
}

// Serve returns nil after ctx ended and all has stopped within the grace.
func (p Program) Serve(ctx context.Context, log *slog.Logger) (err error) {
	b, f := p.Base, p.Fleet
	c := &Core{program: p, Log: log, Metrics: Metrics(), began: time.Now()}
	c.Traces = tracing.Start(ctx, tracing.Config{Program: p.Name, Version: cli.Version(), Instance: b.InstanceID, Logger: log})
	defer c.Traces.Close()
	if c.Clients, err = connect.Open(ctx, &b.Redis, f.ControlDeadline()); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Clients.Close()) }()
	if p.After != nil {
		defer func() { err = errors.Join(err, p.After(ctx)) }()
	}
	if _, err = c.Clients.Check(ctx); err != nil {
		return err
	}
	for _, warning := range c.Clients.Status(false).Warnings {
		log.Warn(warning, "server", c.Clients.Server)
	}
	if p.Before != nil {
		if err := p.Before(ctx, c); err != nil {
			return err
		}
	}
	if err := f.tagged(strings.ToUpper(p.Name), b); err != nil {
		return err
	}
	if err := c.assemble(ctx); err != nil {
		return err
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
		Drain: b.ShutdownGrace * 3 / 10, NoReverseIndex: p.NoIndex || p.NoRegistry, Logger: c.Log,
		Registerer: c.Metrics, Namespace: f.Namespace,
	}
	if p.NoRegistry {
		config.Registerer = nil
	}
	// Of a partition.Registry more than 32 replicas cost no more.
	if c.Registry, err = partition.NewRegistry(config, max(1, f.Partitions)); err != nil {
		return err
	}
	var sweeps []janitor.Sweeper
	if p.Sweeps != nil {
		sweeps = p.Sweeps(c)
	}
	c.Janitor, err = partition.NewJanitor(janitor.Config{
		Client: c.Clients.Data, Control: c.Clients.Control, Sweeps: sweeps,
		Interval: f.Every, LeaseTTL: f.LeaseTTL, RedisShare: f.RedisShare, DryRun: f.DryRun,
		ScanCount: f.ScanCount, DeleteBatch: f.DeleteBatch, ExistsConcurrency: f.Exists,
		StartSpan: c.Traces.StartSpan(), Logger: c.Log, Registerer: c.Metrics,
	}, c.Registry)
	if err != nil {
		return err
	}
	if p.Made != nil {
		if err := p.Made(ctx, c); err != nil {
			return err
		}
	}
	tokens, files, err := b.Tokens()
	if err != nil {
		return err
	}
	c.files = reload.New(c.Log, c.Metrics, slices.Concat(files, c.Clients.Files, c.Files)...)
	page := console.HTTPConfig{
		Addr: b.HTTPAddr, Hosts: b.HTTPHosts, Tokens: tokens, Janitor: c.Janitor,
		Program: p.Name, Client: c.Clients.Data, Layout: c.Registry.Layout(), Status: c.status, Page: p.Page,
		Metrics: c.Metrics, Logger: c.Log,
	}
	if p.HTTP != nil {
		p.HTTP(&page)
	}
	c.HTTP, err = console.ListenHTTP(ctx, page)
	return err
}

// parts in the order of their stops. The janitor joins its passes and releases the lease. The
// registry sends heartbeats until then, hands back its claims and deregisters: a heartbeat that
// ends under a leader raises a hold. HTTP shows all of that, and ends last.
func (c *Core) parts() []Part {
	keeps := c.Registry.Run
	all := []Part{
		{"http", c.HTTP.Run, cmp.Or(c.program.HTTPStops, 10)},
		{"redis", c.Clients.Watch, 4},
		{"janitor", c.Janitor.Run, 4},
	}
	if c.program.Fleet.Partitions == 0 {
		keeps = c.Registry.Partitions()[0].Run
		all = append(all, Part{"undivided", c.undivided, 4})
	}
	all = append(all, Part{"registry", keeps, 6})
	for i, part := range all {
		if around := c.program.Around[part.Name]; around != nil {
			all[i].Run = around(part.Run)
		}
		if part.Name == "janitor" {
			all[i].Run = Accepted(c.Registry.Status, all[i].Run)
		}
	}
	if c.program.Parts != nil {
		all = append(all, c.program.Parts()...)
	}
	return all
}

func (c *Core) run(ctx context.Context) error {
	return runAll(ctx, c.program.Base.ShutdownGrace, c.Log, c.parts(), func(left []string) {
		c.draining.Store(true)
		if slices.Contains(left, "registry") {
			// No context ends a call that waits for a silent Redis; this does.
			_ = c.Clients.Data.Close()
		}
	})
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

// Draining reports whether the program stops.
func (c *Core) Draining() bool { return c.draining.Load() }

// Began is when Serve was called.
func (c *Core) Began() time.Time { return c.began }

// status asks nobody.
func (c *Core) status() console.Stated {
	st := console.Status{
		Instance: c.Registry.Instance(), Version: cli.Version(),
		Time: time.Now(), Started: c.began, HTTPAddr: c.HTTP.OperatorAddr(),
		Admin: c.program.Base.AdminToken != "", Files: c.files.Status(),
		Registry: c.Registry.Status(), Janitor: c.Janitor.Status(),
	}
	st.Judge("replica", c.Clients, c.draining.Load())
	if c.program.Status != nil {
		return c.program.Status(st)
	}
	return st
}

// Serving logs how the program begins and ends.
func Serving(c *cli.Command, b *Base, serve func(context.Context, *slog.Logger) error) cli.Run {
	return func(ctx context.Context, _, stderr io.Writer) error {
		options := &slog.HandlerOptions{Level: b.LogLevel, ReplaceAttr: printable.Attr}
		log := slog.New(slog.NewTextHandler(stderr, options))
		if b.LogFormat == "json" {
			log = slog.New(slog.NewJSONHandler(printable.Writer(stderr), options))
		}
		// Here and not by the registry, so that the first line has it, too.
		if b.InstanceID == "" {
			b.InstanceID, b.Unique = registry.UniqueInstance(), true
		}
		log = log.With("instance", b.InstanceID)
		log.Info("starting", "version", cli.Version(), slog.Any("settings", slog.GroupValue(c.Shown()...)))
		if exposed := c.Exposed(); len(exposed) > 0 {
			log.Warn("a secret is on the command line, where every user of this machine can read it: "+
				"set it in the environment or in a file", "flags", exposed)
		}
		if err := serve(ctx, log); err != nil {
			log.Error(c.Name+" failed", "error", err)
			return cli.ErrSaid
		}
		log.Info("stopped")
		return nil
	}
}

const acceptedPoll = 20 * time.Millisecond

// Accepted begins a part when the first heartbeat has landed, or Redis does not answer. While Redis
// refuses this replica the part could only report that again.
func Accepted(
	status func() registry.Status, run func(context.Context) error,
) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			reg := status()
			if !reg.LastBeat.IsZero() || reg.Refused == "" && reg.Failing["heartbeat"] != "" {
				return run(ctx)
			}
			if !wait.For(ctx, acceptedPoll) {
				return nil
			}
		}
	}
}

// Metrics returns a registry with the metrics of the Go runtime and of the process.
func Metrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}
