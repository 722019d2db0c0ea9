package main

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
	"strings"
	"syscall"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/partition"
	"github.com/rollcall-redis/rollcall/registry"
)

// demo shows Rollcall at work, with replicas of the real program and simulated trackers, on a Redis
// that nobody else uses.
//
//	three replicas, the fleet connects ─► all routable
//	the leader is killed (SIGKILL)     ─► another leads; the entries left are swept; the devices return
//	a replica joins                    ─► some devices lose their coverage and come back, on it too
//	the leader is stopped (SIGTERM)    ─► hands everything over; its devices come back elsewhere
//
// Only the actions and their order are scripted. Every figure is measured. At the end each entry
// must name the replica that has the device's socket, and every acknowledged record must be in the
// telemetry stream: `rollcall verify` and the rows of chaos compare more.
type demo struct {
	out     io.Writer
	devices int
	seed    uint64
	pace

	command  func(args ...string) *exec.Cmd // a replica's
	clients  *connect.Clients
	url      string // of Redis
	registry *partition.Registry
	elector  *lease.Elector // never runs; reports the leader
	dir      string         // the replicas' logs
	fleet    *sim.Simulation
	ledger   sim.Ledger
	began    time.Time
	all      []*demoReplica // ever started
}

type pace struct {
	beat, ttl       time.Duration // HEARTBEAT_INTERVAL, HEARTBEAT_TTL
	interval, lease time.Duration // JANITOR_INTERVAL, JANITOR_LEASE_TTL
	frame           time.Duration // between two frames of a device
	// a minute on the ladder of reconnects, longer than the sweep of a dead replica takes
	minute   time.Duration
	calm     time.Duration // between two steps, for the reader
	patience time.Duration // for any expected event
}

// leisurely is slow enough to read along.
var leisurely = pace{
	beat: 2 * time.Second, ttl: 6 * time.Second, interval: 5 * time.Second, lease: 3 * time.Second,
	frame: 2 * time.Second, minute: 12 * time.Second, calm: 5 * time.Second, patience: time.Minute,
}

const (
	replicasAtStart = 3
	pollEvery       = 20 * time.Millisecond
	// mostDemo bounds the devices: the demo reads the whole registry every few ms.
	mostDemo = 5000
)

type demoReplica struct {
	*process.Process
	id      string
	leaving bool   // asked to end
	devices string // address
}

func runDemo() *cli.Command {
	d := &demo{pace: leisurely}
	return &cli.Command{
		Name: "ingest demo",
		About: `ingest demo shows in a minute what happens when replicas die, join and stop: three
replicas on a Redis of its own, a fleet of simulated trackers, and what becomes of the
registry. Nothing listens beyond this machine.`,
		Settings: []cli.Setting{
			{Name: "devices", Default: "300", Value: cli.Number(&d.devices, 3, mostDemo),
				Meaning: "number of trackers"},
			cli.Seed(&d.seed),
		},
		Check: func(in *cli.Input) {
			if err := descriptorsFor(2 * d.devices); err != nil {
				in.Fault("%v", err)
			}
		},
		Run: func(ctx context.Context, stdout, _ io.Writer) (err error) {
			d.out = stdout
			if d.command, err = cli.Itself(new(settings).table(), os.Environ()); err != nil {
				return err
			}
			return d.run(ctx)
		},
		Notes: `Exit status: 0 if the registry converged exactly, 1 if not or interrupted, 2 on wrong
arguments.`,
	}
}

// run plays the demo and judges the result. None of its processes outlives it. After an error the
// replicas' logs are kept in a folder that the timeline names, unless ctx has ended.
func (d *demo) run(ctx context.Context) (err error) {
	s := new(settings)
	if err := s.Redis.Parse(connect.EmbeddedRedis); err != nil {
		return err
	}
	if d.clients, err = connect.Open(ctx, &s.Redis, time.Second); err != nil {
		return err
	}
	defer d.clients.Close()
	d.url = "redis://" + d.clients.Embedded
	if d.registry, err = s.lookups(ctx, d.clients); err != nil {
		return err
	}
	key := d.registry.Layout().Lease()
	d.elector, err = lease.New(lease.Config{Client: d.clients.Control, Key: key, Instance: "demo"})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if d.dir, err = os.MkdirTemp("", "rollcall-demo-"); err != nil {
		return fmt.Errorf("demo: a folder for logs: %w", err)
	}
	d.began = time.Now()
	err = d.play(ctx)
	for _, r := range d.all { // first, since they write to the logs
		r.Kill()
	}
	if err == nil || ctx.Err() != nil {
		_ = os.RemoveAll(d.dir) // a failure leaves files only in the system's temporary folder
		return cmp.Or(context.Cause(ctx), err)
	}
	d.say("the replicas' logs are in %s", d.dir)
	return err
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) play(ctx context.Context) (err error) {
	if d.fleet, err = sim.Simulate(sim.Config{
		Devices: d.devices, Targets: []string{"127.0.0.1:1"}, Interval: d.frame, Seed: d.seed,
		LadderUnit: d.minute, Acknowledged: d.ledger.Acknowledged,
	}); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	for range replicasAtStart {
		if _, err := d.launch(ctx); err != nil {
			return err
		}
	}
	d.say("%d replicas serve (heartbeat every %v, TTL %v, lease %v), on %s",
		replicasAtStart, d.beat, d.ttl, d.lease, d.url)
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.fleet.Run(running)
	}()
	defer func() {
		stop()
		<-ended
	}()
	for _, step := range []func(context.Context) error{
		d.gather, d.killLeader, d.addReplica, d.stopLeader,
	} {
		if err := step(ctx); err != nil {
			return err
		}
		if !wait.For(ctx, d.calm) {
			return context.Cause(ctx)
		}
	}
	return d.judge(ctx)
}

// launch waits until the replica serves devices, and has the balancer use it.
func (d *demo) launch(ctx context.Context) (*demoReplica, error) {
	id := fmt.Sprintf("replica-%d", len(d.all)+1)
	cmd := d.command()
	cmd.Env = append(cmd.Env,
		"REDIS_URL="+d.url, "INSTANCE_ID="+id, "INGEST_ADDR=127.0.0.1:0", "HTTP_ADDR=127.0.0.1:0",
		"HEARTBEAT_INTERVAL="+d.beat.String(), "HEARTBEAT_TTL="+d.ttl.String(),
		"JANITOR_INTERVAL="+d.interval.String(), "JANITOR_LEASE_TTL="+d.lease.String(),
		"INGEST_MAX_CONNS="+strconv.Itoa(4*d.devices), "LOG_FORMAT=json")
	child, err := process.Start(cmd, process.Options{Log: filepath.Join(d.dir, id+".log"), OwnGroup: true})
	if err != nil {
		return nil, fmt.Errorf("demo: start %s: %w", id, err)
	}
	r := &demoReplica{Process: child, id: id}
	d.all = append(d.all, r)
	err = d.await(ctx, event{id + " to serve devices", func(*state) bool {
		r.devices = r.Said("listening for devices", "addr")
		return r.devices != ""
	}, nil})
	d.balance()
	return r, err
}

// running omits the replicas that were asked to end.
func (d *demo) running() []*demoReplica {
	return slices.DeleteFunc(slices.Clone(d.all), func(r *demoReplica) bool { return r.leaving })
}

func (d *demo) balance() {
	var addrs []string
	for _, r := range d.running() {
		addrs = append(addrs, r.devices)
	}
	d.fleet.SetTargets(addrs...)
}

func (d *demo) gather(ctx context.Context) error {
	d.say("%d trackers are switched on; each reports every %v", d.devices, d.frame)
	return d.await(ctx, d.whole(), d.leads())
}

func (d *demo) killLeader(ctx context.Context) error {
	const says = "KILLED the leader %s: %d entries name it, and nobody is there"
	return d.endLeader(ctx, says, (*process.Process).Kill)
}

func (d *demo) stopLeader(ctx context.Context) error {
	const says = "STOPPED the leader %s gracefully: it holds %d devices"
	return d.endLeader(ctx, says, func(p *process.Process) { _ = p.Signal(syscall.SIGTERM) }) // await would fail
}

func (d *demo) endLeader(ctx context.Context, says string, end func(*process.Process)) error {
	var old *demoReplica
	var held int
	if err := d.await(ctx, event{"somebody to lead", func(s *state) bool {
		if old = s.leader; old != nil {
			held = s.naming(old.id)
		}
		return old != nil
	}, nil}); err != nil {
		return err
	}
	old.leaving = true
	d.balance()
	end(old.Process)
	d.say(says, old.id, held)
	return d.await(ctx, d.leads(),
		event{"nothing of it to be left", func(s *state) bool {
			return s.naming(old.id) == 0 && !s.alive[old.id] && !old.Runs()
		}, func(*state) string {
			return fmt.Sprintf("%s is gone: its entries are handed back, taken over or swept (TTL %v)", old.id, d.ttl)
		}},
		d.whole())
}

func (d *demo) addReplica(ctx context.Context) error {
	r, err := d.launch(ctx)
	if err != nil {
		return err
	}
	forgotten := d.fleet.Counts().HalfOpen
	asked := d.fleet.LoseCoverage(d.devices / 3)
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

// state is what Redis says.
type state struct {
	leader  *demoReplica      // nil: none that is to stay
	entries map[string]string // IMEI -> instance
	alive   map[string]bool   // heartbeat exists
}

func (d *demo) read(ctx context.Context) (*state, error) {
	s := &state{alive: make(map[string]bool)}
	holder, err := d.elector.Holder(ctx)
	if err == nil {
		s.entries, err = d.clients.Data.HGetAll(ctx, d.registry.Layout().Registry()).Result()
	}
	var owners []registry.Owner
	if err == nil {
		owners, err = d.registry.Owners(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("demo: read Redis: %w", err)
	}
	for _, o := range owners {
		s.alive[o.Instance] = o.Live
	}
	for _, r := range d.running() {
		if r.id == holder.Instance {
			s.leader = r
		}
	}
	return s, nil
}

func (s *state) naming(id string) (n int) {
	for _, owner := range s.entries {
		if owner == id {
			n++
		}
	}
	return n
}

// differences compares entries with truth: where the devices have their sockets.
func (d *demo) differences(s *state, truth map[string]string) (found []string) {
	instances := make(map[string]string)
	for _, r := range d.running() {
		instances[r.devices] = r.id // if two replicas had the same port, the later one wins
		if !s.alive[r.id] {
			found = append(found, r.id+" has no heartbeat")
		}
	}
	if len(truth) != d.devices {
		found = append(found, fmt.Sprintf("%d of %d devices are connected", len(truth), d.devices))
	}
	for imei, addr := range truth {
		if id := instances[addr]; id == "" || s.entries[imei] != id {
			found = append(found, fmt.Sprintf("%s has its socket at %q, its entry names %q", imei, id, s.entries[imei]))
		}
	}
	for imei, id := range s.entries {
		if truth[imei] == "" {
			found = append(found, fmt.Sprintf("an entry of %s names %s, and there is no socket", imei, id))
		}
	}
	return found
}

type event struct {
	what  string
	holds func(*state) bool
	say   func(*state) string // nil: nothing
}

func (d *demo) leads() event {
	return event{"somebody to lead", func(s *state) bool { return s.leader != nil },
		func(s *state) string { return s.leader.id + " leads" }}
}

// whole is the event that all devices are routable.
func (d *demo) whole() event {
	return event{"every device to be routable", func(s *state) bool { return len(d.differences(s, d.fleet.Where())) == 0 },
		func(s *state) string {
			var parts []string
			for _, r := range d.running() {
				parts = append(parts, fmt.Sprintf("%s %d", r.id, s.naming(r.id)))
			}
			return fmt.Sprintf("all %d devices routable: %s", d.devices, strings.Join(parts, ", "))
		}}
}

// await reports each event as it happens, in any order.
func (d *demo) await(ctx context.Context, events ...event) error {
	for began := time.Now(); ; {
		s, err := d.read(ctx)
		events = slices.DeleteFunc(events, func(e event) bool {
			happened := err == nil && e.holds(s)
			if happened && e.say != nil {
				d.say("%s, %.1f s after", e.say(s), time.Since(began).Seconds())
			}
			return happened
		})
		if len(events) == 0 {
			return nil
		}
		for _, r := range d.running() {
			if text := r.Log(); !r.Runs() {
				return fmt.Errorf("demo: %s has ended: %s", r.id, text[max(0, len(text)-1000):])
			}
		}
		if time.Since(began) > d.patience { // one failed read is not a reason to give up
			return errors.Join(fmt.Errorf("demo: waited in vain for %s", events[0].what), err)
		}
		if !wait.For(ctx, pollEvery) {
			return context.Cause(ctx)
		}
	}
}

func (d *demo) judge(ctx context.Context) error {
	var found []string
	if err := d.await(ctx, event{"the registry to be the truth", func(s *state) bool {
		found = d.differences(s, d.fleet.Where())
		return len(found) == 0
	}, nil}); err != nil {
		return errors.Join(err, errors.New(strings.Join(found[:min(10, len(found))], "; ")))
	}
	acked, missing, err := d.ledger.Check(ctx, d.clients.Data, gateway.Stream)
	if err == nil && missing > 0 {
		err = fmt.Errorf("demo: %d of %d acknowledged records are not in the stream", missing, acked)
	}
	if err != nil {
		return err
	}
	d.say("CONVERGED: %d entries, each names the replica that holds the socket; "+
		"%d records acknowledged, every one is in the stream", d.devices, acked)
	return nil
}
