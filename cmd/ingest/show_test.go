package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/registry"
)

// watched is for make demo.
var watched = flag.Bool("watched", false, "play TestShow at a pace to read along")

// show has replicas of the real program, in processes of their own, and simulated trackers on a
// Redis that nobody else uses.
type show struct {
	t       *testing.T
	pace    pace
	clients *connect.Clients
	fleet   *fleet
	devices int
	began   time.Time
	all     []*player // ever started
}

type pace struct {
	beat, ttl       time.Duration // HEARTBEAT_INTERVAL, HEARTBEAT_TTL
	interval, lease time.Duration // JANITOR_INTERVAL, JANITOR_LEASE_TTL
	frame           time.Duration // between two frames of a device
	// a minute on the ladder of reconnects, longer than the sweep of a dead replica takes
	minute time.Duration
	calm   time.Duration // between two steps, for the reader
}

type player struct {
	*process.Process
	id, devices string
	leaving     bool // asked to end
}

// TestShow is the demonstration:
//
//	three replicas, the fleet connects ─► all routable
//	the leader is killed (SIGKILL)     ─► another leads; the entries left are swept; the devices return
//	a replica joins                    ─► some devices lose their coverage and come back, on it too
//	the leader is stopped (SIGTERM)    ─► hands everything over; its devices come back elsewhere
//
// Only the actions and their order are scripted. Every figure is measured. At the end each entry
// must name the replica that has the device's socket, and every acknowledged record must be in the
// telemetry stream: `rollcall verify` and the rows of chaos compare more.
func TestShow(t *testing.T) {
	t.Parallel()
	// Hasty, but a busy machine can follow it: a stall of a second is not a gap.
	d := &show{t: t, devices: 60, began: time.Now(), pace: pace{
		beat: 700 * time.Millisecond, ttl: 2800 * time.Millisecond, interval: time.Second, lease: 2 * time.Second,
		frame: 400 * time.Millisecond, minute: 4 * time.Second,
	}}
	if *watched {
		d.devices, d.pace = 300, pace{
			beat: 2 * time.Second, ttl: 6 * time.Second, interval: 5 * time.Second, lease: 3 * time.Second,
			frame: 2 * time.Second, minute: 12 * time.Second, calm: 5 * time.Second,
		}
	}
	var target connect.Redis
	require.NoError(t, target.Parse(connect.EmbeddedRedis))
	var err error
	d.clients, err = connect.Open(t.Context(), &target, time.Second)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.clients.Close() })

	for range 3 {
		d.launch()
	}
	d.say("3 replicas serve (heartbeat every %v, TTL %v, lease %v), on redis://%s",
		d.pace.beat, d.pace.ttl, d.pace.lease, d.clients.Embedded)
	d.fleet = simulating(t, sim.Config{
		Devices: d.devices, Targets: d.targets(), Interval: d.pace.frame, LadderUnit: d.pace.minute,
	})
	d.say("%d trackers are switched on; each reports every %v", d.devices, d.pace.frame)
	d.await(d.whole, d.leads)
	d.endLeader("KILLED the leader %s: %d entries name it, and nobody is there", (*process.Process).Kill)

	added, before := d.launch(), d.fleet.Counts().HalfOpen
	asked := d.fleet.LoseCoverage(d.devices / 3)
	d.say("ADDED %s; %d devices lose their coverage: they leave sockets half-open, and come back on new ones",
		added.id, asked)
	d.await(func(s *state) string {
		if d.fleet.Counts().HalfOpen < before+asked {
			return ""
		}
		return d.whole(s)
	})
	d.fleet.DropStale()
	d.say("the half-open sockets end at last; no late close may undo a newer claim")
	d.endLeader("STOPPED the leader %s gracefully: it holds %d devices", func(p *process.Process) {
		require.NoError(t, p.Signal(syscall.SIGTERM))
	})
	acked := d.fleet.requireStored(t, d.clients.Data)
	d.say("CONVERGED: %d entries, each names the replica that holds the socket; "+
		"%d records acknowledged, every one is in the stream", d.devices, acked)
}

func (d *show) say(format string, args ...any) {
	line := fmt.Sprintf("%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
	if *watched {
		_, _ = os.Stdout.WriteString(line)
		return
	}
	_, _ = d.t.Output().Write([]byte(line))
}

// launch waits until the replica serves devices, and has the balancer use it.
func (d *show) launch() *player {
	r := &player{id: fmt.Sprintf("replica-%d", len(d.all)+1)}
	r.Process = servingChild(d.t, "--redis-url=redis://"+d.clients.Embedded, "--instance-id="+r.id,
		"--heartbeat-interval="+d.pace.beat.String(), "--heartbeat-ttl="+d.pace.ttl.String(),
		"--janitor-interval="+d.pace.interval.String(), "--janitor-lease-ttl="+d.pace.lease.String(),
		"--ingest-max-conns="+strconv.Itoa(4*d.devices))
	r.devices = r.Said("listening for devices", "addr")
	d.all = append(d.all, r)
	d.balance()
	return r
}

func (d *show) staying() []*player {
	return slices.DeleteFunc(slices.Clone(d.all), func(r *player) bool { return r.leaving })
}

func (d *show) targets() (addrs []string) {
	for _, r := range d.staying() {
		addrs = append(addrs, r.devices)
	}
	return addrs
}

func (d *show) balance() {
	if d.fleet != nil {
		d.fleet.SetTargets(d.targets()...)
	}
}

func (d *show) endLeader(says string, end func(*process.Process)) {
	time.Sleep(d.pace.calm)
	s := d.read()
	require.NotNil(d.t, s.leader)
	old := s.leader
	old.leaving = true
	d.balance()
	end(old.Process)
	d.say(says, old.id, s.naming(old.id))
	d.await(d.leads, func(s *state) string {
		if s.naming(old.id) > 0 || s.alive[old.id] || old.Runs() {
			return ""
		}
		return fmt.Sprintf("%s is gone: its entries are handed back, taken over or swept (TTL %v)", old.id, d.pace.ttl)
	}, d.whole)
	time.Sleep(d.pace.calm)
}

// state is what Redis says.
type state struct {
	leader  *player           // nil: none that is to stay
	entries map[string]string // IMEI -> instance
	alive   map[string]bool   // heartbeat exists
}

func (d *show) read() *state {
	ctx, rdb, keys := d.t.Context(), d.clients.Data, registry.Layout{}
	s := &state{entries: rdb.HGetAll(ctx, keys.Registry()).Val(), alive: make(map[string]bool)}
	holder, _, _ := strings.Cut(rdb.Get(ctx, keys.Lease()).Val(), "/")
	for _, r := range d.all {
		s.alive[r.id] = rdb.Exists(ctx, keys.Heartbeat(r.id)).Val() == 1
		if r.id == holder && !r.leaving {
			s.leader = r
		}
	}
	return s
}

func (s *state) naming(id string) (n int) {
	for _, owner := range s.entries {
		if owner == id {
			n++
		}
	}
	return n
}

// An event has happened once it says something.
type event func(*state) string

func (d *show) leads(s *state) string {
	if s.leader == nil {
		return ""
	}
	return s.leader.id + " leads"
}

// whole is the event that the entries are the truth: where the devices have their sockets.
func (d *show) whole(s *state) string {
	instances := make(map[string]string)
	var parts []string
	for _, r := range d.staying() {
		if !s.alive[r.id] {
			return ""
		}
		instances[r.devices] = r.id // if two replicas had the same port, the later one wins
		parts = append(parts, fmt.Sprintf("%s %d", r.id, s.naming(r.id)))
	}
	truth := d.fleet.Where()
	for imei, addr := range truth {
		truth[imei] = instances[addr]
	}
	if len(truth) != d.devices || !maps.Equal(truth, s.entries) {
		return ""
	}
	return fmt.Sprintf("all %d devices routable: %s", d.devices, strings.Join(parts, ", "))
}

// await reports each event as it happens, in any order.
func (d *show) await(events ...event) {
	d.t.Helper()
	began := time.Now()
	waittest.Until(d.t, 20*time.Millisecond, func() bool {
		s := d.read()
		events = slices.DeleteFunc(events, func(happened event) bool {
			says := happened(s)
			if says != "" {
				d.say("%s, %.1f s after", says, time.Since(began).Seconds())
			}
			return says != ""
		})
		for _, r := range d.staying() {
			require.True(d.t, r.Runs(), "%s has ended: %s", r.id, r.Log())
		}
		return len(events) == 0
	})
}
