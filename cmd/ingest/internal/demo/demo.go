// Package demo shows Rollcall at work in a minute, with replicas of the real program and a fleet of
// simulated trackers, on a Redis that nobody else uses.
//
//	three replicas, the fleet connects ─► all routable
//	the leader is killed (SIGKILL)     ─► another leads; the entries left are swept; the devices return
//	a replica joins                    ─► some devices lose their coverage and come back, on it too
//	the leader is stopped (SIGTERM)    ─► hands everything over; its devices come back elsewhere
//
// Only the actions and their order are scripted. Every figure is measured. At the end each entry
// must name the replica that has the device's socket, and every acknowledged record must be in the
// telemetry stream: `rollcall verify` and the rows of chaos compare more.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/simulate"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// Config configures a demo.
type Config struct {
	// Command returns a replica's process. Run adds settings to its environment.
	Command func(args ...string) *exec.Cmd
	// Control is another client of the same Redis, safe for a lease: see [lease.Options].
	Redis, Control redis.UniversalClient
	RedisURL       string
	// Out receives the timeline.
	Out     io.Writer
	Devices int
	Seed    uint64
	// Default [Leisurely].
	Pace Pace
}

// Pace has a demo's timings.
type Pace struct {
	Beat, TTL       time.Duration // HEARTBEAT_INTERVAL, HEARTBEAT_TTL
	Interval, Lease time.Duration // JANITOR_INTERVAL, JANITOR_LEASE_TTL
	Frame           time.Duration // between two frames of a device
	// a minute on the ladder of reconnects, longer than the sweep of a dead replica takes
	Minute   time.Duration
	Calm     time.Duration // between two steps, for the reader
	Patience time.Duration // for any expected event
}

// Leisurely is slow enough to read along; the demo takes about a minute.
var Leisurely = Pace{
	Beat: 2 * time.Second, TTL: 6 * time.Second, Interval: 5 * time.Second, Lease: 3 * time.Second,
	Frame: 2 * time.Second, Minute: 12 * time.Second, Calm: 5 * time.Second, Patience: 60 * time.Second,
}

const (
	replicasAtStart = 3
	pollEvery       = 20 * time.Millisecond
)

type demo struct {
	Config
	keys    registry.Layout
	dir     string // the replicas' logs
	fleet   *simulate.Fleet
	elector *lease.Elector // never runs; reports the leader
	began   time.Time
	all     []*replica // ever started

	mu    sync.Mutex
	acked map[record]bool
}

type replica struct {
	*process.Process
	id      string
	leaving bool   // asked to end
	devices string // address
}

// Run plays the demo and judges the result. None of its processes outlives it. After an error the
// replicas' logs are kept in a folder that the timeline names, unless ctx has ended.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.Pace = cmp.Or(cfg.Pace, Leisurely)
	d := &demo{Config: cfg, acked: make(map[record]bool), began: time.Now()}
	d.elector, err = lease.New(lease.Config{Client: cfg.Control, Key: d.keys.Lease(), Instance: "demo"})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if d.dir, err = os.MkdirTemp("", "rollcall-demo-"); err != nil {
		return fmt.Errorf("demo: a folder for logs: %w", err)
	}
	defer func() {
		for _, r := range d.all { // first, since they write to the logs
			r.Kill()
		}
		if err == nil || ctx.Err() != nil {
			_ = os.RemoveAll(d.dir) // a failure leaves files only in the system's temporary folder
			return
		}
		d.say("the replicas' logs are in %s", d.dir)
	}()
	return d.play(ctx)
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.Out, "%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) play(ctx context.Context) (err error) {
	if d.fleet, err = simulate.New(simulate.Config{
		Devices: d.Devices, Targets: []string{"127.0.0.1:1"}, Interval: d.Pace.Frame, Seed: d.Seed,
		LadderUnit: d.Pace.Minute, Acknowledged: d.acknowledged,
	}); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for range replicasAtStart {
		if _, err := d.launch(ctx); err != nil {
			return err
		}
	}
	d.say("%d replicas serve (heartbeat every %v, TTL %v, lease %v), on %s",
		replicasAtStart, d.Pace.Beat, d.Pace.TTL, d.Pace.Lease, d.RedisURL)
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.fleet.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	for _, step := range []func(context.Context) error{
		d.gather, d.killLeader, d.addReplica, d.stopLeader,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if !wait.For(ctx, d.Pace.Calm) {
			return context.Cause(ctx)
		}
	}
	return d.judge(ctx)
}

// launch waits until the replica serves devices, and has the balancer use it.
func (d *demo) launch(ctx context.Context) (*replica, error) {
	id := fmt.Sprintf("replica-%d", len(d.all)+1)
	cmd, p := d.Command(), d.Pace
	cmd.Env = append(cmd.Env,
		"REDIS_URL="+d.RedisURL, "INSTANCE_ID="+id, "INGEST_ADDR=127.0.0.1:0", "HTTP_ADDR=127.0.0.1:0",
		"HEARTBEAT_INTERVAL="+p.Beat.String(), "HEARTBEAT_TTL="+p.TTL.String(),
		"JANITOR_INTERVAL="+p.Interval.String(), "JANITOR_LEASE_TTL="+p.Lease.String(),
		"INGEST_MAX_CONNS="+strconv.Itoa(4*d.Devices), "LOG_FORMAT=json")
	child, err := process.Start(cmd, process.Options{Log: filepath.Join(d.dir, id+".log"), OwnGroup: true})
	if err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", id, err)
	}
	r := &replica{Process: child, id: id}
	d.all = append(d.all, r)
	err = d.await(ctx, event{id + " to serve devices", func(*state) bool {
		r.devices = r.Said("listening for devices", "addr")
		return r.devices != ""
	}, nil})
	d.balance()
	return r, err
}

// running omits the replicas that were asked to end.
func (d *demo) running() []*replica {
	return slices.DeleteFunc(slices.Clone(d.all), func(r *replica) bool { return r.leaving })
}

func (d *demo) balance() {
	var addrs []string
	for _, r := range d.running() {
		addrs = append(addrs, r.devices)
	}
	d.fleet.SetTargets(addrs...)
}

func (d *demo) gather(ctx context.Context) error {
	d.say("%d trackers are switched on; each reports every %v", d.Devices, d.Pace.Frame)
	return d.await(ctx, d.whole(), event{"somebody to lead", func(s *state) bool { return s.leader != nil },
		func(s *state) string { return s.leader.id + " leads" }})
}

func (d *demo) killLeader(ctx context.Context) error {
	const says = "KILLED the leader %s: %d entries name it, and nobody is there"
	return d.endLeader(ctx, says, func(r *replica) error {
		r.Kill()
		return nil
	})
}

func (d *demo) stopLeader(ctx context.Context) error {
	return d.endLeader(ctx, "STOPPED the leader %s gracefully: it holds %d devices", func(r *replica) error {
		return r.Signal(syscall.SIGTERM)
	})
}

func (d *demo) endLeader(ctx context.Context, says string, end func(*replica) error) error {
	var old *replica
	if err := d.await(ctx, event{"somebody to lead", func(s *state) bool {
		old = s.leader
		return old != nil
	}, nil}); err != nil {
		return err
	}
	s, err := d.read(ctx)
	if err != nil {
		return err
	}
	old.leaving = true
	d.balance()
	if err := end(old); err != nil {
		return fmt.Errorf("demo: end %s: %w", old.id, err)
	}
	d.say(says, old.id, s.naming(old.id))
	return d.await(ctx,
		event{"another to lead", func(s *state) bool { return s.leader != nil && s.leader != old },
			func(s *state) string { return s.leader.id + " leads" }},
		event{"nothing of it to be left", func(s *state) bool {
			return s.naming(old.id) == 0 && !s.alive[old.id] && !old.Runs()
		}, func(*state) string {
			return fmt.Sprintf("%s is gone: its entries are handed back, taken over or swept (TTL %v)", old.id, d.Pace.TTL)
		}},
		d.whole())
}

func (d *demo) addReplica(ctx context.Context) error {
	r, err := d.launch(ctx)
	if err != nil {
		return err
	}
	forgotten := d.fleet.Counts().HalfOpen
	asked := d.fleet.LoseCoverage(d.Devices / 3)
	d.say("ADDED %s; %d devices lose their coverage: they leave sockets half-open, and come back on new ones",
		r.id, asked)
	again := d.whole()
	routable := again.holds
	again.holds = func(s *state) bool { return d.fleet.Counts().HalfOpen >= forgotten+asked && routable(s) }
	if err := d.await(ctx, again); err != nil {
		return err
	}
	d.fleet.DropStale()
	d.say("the half-open sockets end at last; no late close may undo a newer claim")
	return nil
}
