package search

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/episodes"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// What every replica is set to: GAP 5 s, GRACE 17 s.
const (
	interval, ttl = 5 * time.Second, 15 * time.Second
	grace         = ttl + 2*time.Second
	leaseTTL      = 5 * time.Second
	sweepEvery    = 10 * time.Second
)

// life is one process of a replica.
type life struct {
	id       string
	sweeps   bool // it has a janitor; else it embeds the registry alone
	began    time.Time
	line     *line
	registry *partition.Registry
	stop     func()
	ended    chan struct{}
	running  bool
	left     bool // with a goodbye

	// For the oracle alone.
	able  time.Time   // since when it can reach the server; zero: it cannot
	hit   *hit        // that has had it off since
	fell  []time.Time // by partition: the beat with which its silence began, if that was a TTL ago
	spare []bool      // by partition: most of those hit with it were off then
}

// replica is a place at which one process runs after the other.
type replica struct {
	name   string
	fixed  bool // each process there has the same instance id
	sweeps bool
	idle   bool // no device comes here, while others run
	lives  int
	*life
}

// device is one tracker. It knows where it is connected; nobody else does.
type device struct {
	imei   string
	parked bool      // it sends nothing
	pings  bool      // it can be pinged
	away   time.Time // it does not connect before
	socket *socket
	newest *socket // whose handshake came last
}

// socket is one connection of a device at a replica. It is open there until the replica closes it,
// also if the device is elsewhere by then.
type socket struct {
	of    *device
	at    *life
	claim *registry.Claim
	opens time.Time
}

// fleet is all replicas and devices, on one server.
type fleet struct {
	t          *testing.T
	s          *redisServer // the primary
	name       name         // leads to it
	servers    []*redisServer
	seed       uint64
	layout     guard.Layout
	partitions int
	index, dry bool
	paused     bool
	replicas   []*replica
	devices    []*device
	processes  []*life // all that ever ran
	byHand     bool    // somebody deleted or wrote keys since all was quiet
	unseen     bool    // the server is another since, and nobody may ask which
	forged     bool    // somebody wrote records
	poisoned   []poison

	evicting, strange time.Time // until when keys are evicted, and a stranger is turned away

	mu      sync.Mutex // what replicas call back touches
	sockets []*socket
	byID    map[string]*life // the newest process of an instance id
	trace   []string
	wrong   string // found in the middle of a script
	swept   int    // entries

	unled []time.Time // by partition: since when nobody leads though somebody could
	episodes.Tally
}

func newFleet(t *testing.T, seed uint64) *fleet {
	rng := rand.New(rand.NewPCG(seed, 2))
	f := &fleet{
		t: t, seed: seed, layout: guard.Layout{Prefix: "{f}:"}, byID: map[string]*life{},
		partitions: []int{1, 1, 2, 4}[rng.IntN(4)], index: rng.IntN(3) > 0, dry: rng.IntN(10) == 0,
	}
	f.serve(newServer(t))
	f.s.mute = rng.IntN(6) == 0
	janitors, alone := 1+rng.IntN(5), 0
	if rng.IntN(2) == 0 {
		alone = 1 + rng.IntN(9)
	}
	fixed := rng.IntN(2) == 0
	for i := range janitors + alone {
		f.replicas = append(f.replicas, &replica{name: fmt.Sprintf("r%d", i), fixed: fixed, sweeps: i < janitors})
	}
	if rng.IntN(2) == 0 {
		for _, r := range f.replicas[rng.IntN(len(f.replicas)):] {
			r.idle = true
		}
	}
	f.unled = make([]time.Time, f.partitions)
	for i := range 2 * len(f.replicas) {
		f.devices = append(f.devices, &device{imei: fmt.Sprintf("35%013d", i), parked: rng.IntN(2) == 0, pings: i%3 > 0})
	}
	f.say("%d replicas sweep, %d do not; %d partitions, index %v, dry run %v, fixed ids %v", janitors, alone, f.partitions, f.index, f.dry, fixed)
	phases := rng.Perm(len(f.replicas))
	for i, r := range f.replicas {
		f.start(r)
		time.Sleep(time.Duration(phases[i]+1) * interval / time.Duration(3*len(f.replicas)))
	}
	for i, d := range f.devices {
		up := f.serving()
		f.connect(d, up[i%len(up)])
	}
	return f
}

// serve makes a server the one to which the name leads.
func (f *fleet) serve(s *redisServer) {
	s.evicted = func(e eviction) { f.judge(s, e) }
	f.s, f.servers = s, append(f.servers, s)
	f.name.Store(s)
}

// say notes what happens, for when something is found.
func (f *fleet) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note(format, args...)
}

// note is say where mu is held.
func (f *fleet) note(format string, args ...any) {
	f.trace = append(f.trace, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// part is the layout of one partition.
func (f *fleet) part(k int) guard.Layout { return f.layout.Partition(k, f.partitions) }

func (f *fleet) partOf(imei string) guard.Layout {
	return f.part(guard.PartitionOf(imei, f.partitions))
}

// start starts a process.
func (f *fleet) start(r *replica) {
	r.lives++
	id := r.name
	if !r.fixed {
		id = fmt.Sprintf("%s-%d", r.name, r.lives)
	}
	l := &life{
		id: id, sweeps: r.sweeps, began: time.Now(), line: newLine(&f.name), ended: make(chan struct{}), running: true,
		fell: make([]time.Time, f.partitions), spare: make([]bool, f.partitions),
	}
	client := func(which string) *redis.Client {
		o := lease.Options(f.s.options)
		o.Dialer = l.line.dialer(which)
		// Who waits for a connection takes a timer that the whole process shares; no bubble may.
		o.PoolSize = 1000
		return redis.NewClient(o)
	}
	data, control := client("data"), client("control")
	log := slog.New(slog.DiscardHandler)
	var err error
	l.registry, err = partition.NewRegistry(registry.Config{
		Client: data, Control: control, Instance: id, Unique: !r.fixed, Layout: f.layout,
		HeartbeatInterval: interval, HeartbeatTTL: ttl, Drain: 2 * time.Second,
		NoReverseIndex: !f.index, Logger: log,
	}, f.partitions)
	require.NoError(f.t, err)
	var jan *partition.Janitor
	if r.sweeps {
		jan, err = partition.NewJanitor(janitor.Config{
			Client: data, Control: control, Interval: sweepEvery, LeaseTTL: leaseTTL, DryRun: f.dry, Logger: log,
		}, l.registry)
		require.NoError(f.t, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	var work sync.WaitGroup
	work.Go(func() {
		if err := l.registry.Run(ctx); err != nil {
			f.say("%s ends: %v", id, err)
			f.disconnect(l, false)
			cancel()
		}
	})
	if jan != nil {
		work.Go(func() { _ = jan.Run(ctx) })
	}
	go func() {
		work.Wait()
		_, _ = data.Close(), control.Close()
		close(l.ended)
	}()
	r.life, f.processes = l, append(f.processes, l)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.byID[id] = l
	f.note("%s starts", id)
}

// leave ends a process in good order: its devices are disconnected first.
func (f *fleet) leave(r *replica) {
	f.say("%s stops", r.id)
	l := r.life
	f.disconnect(l, true)
	l.stop()
	<-l.ended
	f.mu.Lock()
	defer f.mu.Unlock()
	l.running, l.left = false, true
}

// kill ends processes at once: nothing that they send from now on arrives. lands: what their lines
// held back still does. A third of their devices stay away until a leader may sweep.
func (f *fleet) kill(lands bool, all ...*replica) {
	f.hits(all)
	for _, r := range all {
		f.say("%s is killed", r.id)
		l := r.life
		f.mu.Lock()
		l.running = false
		f.mu.Unlock()
		l.line.kill(lands)
		for i, d := range f.devices {
			if i%3 == 0 && d.socket != nil && d.socket.at == l {
				d.away = time.Now().Add(4 * grace)
			}
		}
		f.disconnect(l, false)
		l.stop()
	}
}

// disconnect ends all sockets at a process. release: it sees that, and hands back.
func (f *fleet) disconnect(l *life, release bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := f.sockets[:0]
	for _, s := range f.sockets {
		if s.at != l {
			kept = append(kept, s)
			continue
		}
		if release {
			s.claim.Release()
		}
		if s.of.socket == s {
			s.of.socket = nil
		}
	}
	f.sockets = kept
}

// connect opens a socket of a device at a replica. The old one stays half open there, until the
// replica closes it.
func (f *fleet) connect(d *device, r *replica) *socket {
	s := f.open(d, r)
	d.socket = s
	return s
}

// open has a replica read a handshake, which may be of a socket that is dead by now.
func (f *fleet) open(d *device, r *replica) *socket {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &socket{of: d, at: r.life, opens: time.Now()}
	is := registry.Socket{Close: func() error { f.closed(s); return nil }}
	if d.pings {
		is.Ping = func(ctx context.Context) error { return f.answers(ctx, s) }
	}
	s.claim = s.at.registry.Register(d.imei, is)
	f.sockets, d.newest = append(f.sockets, s), s
	return s
}

// answers is a ping of a socket.
func (f *fleet) answers(ctx context.Context, s *socket) error {
	time.Sleep(50 * time.Millisecond)
	f.mu.Lock()
	here := s.of.socket == s
	f.mu.Unlock()
	if !here {
		<-ctx.Done()
	}
	return ctx.Err()
}

// closed is called when a replica closes a socket. The newest one of a device it closes only if
// that does not answer a ping, if somebody writes without asking, or as it ends.
func (f *fleet) closed(s *socket) {
	f.mu.Lock()
	var moved registry.MovedError
	why := s.claim.Err()
	f.note("%s closes a socket of %s: %v", s.at.id, s.of.imei, why)
	switch here := s.of.socket == s; {
	case f.wrong != "" || !s.at.running:
	case errors.As(why, &moved) && s.of.newest == s:
		f.wrong = s.at.id + " closed the newest socket of " + s.of.imei + ": " + why.Error()
	case errors.Is(why, registry.ErrNoAnswer) && here && s.of.pings:
		f.wrong = s.at.id + " closed a socket of " + s.of.imei + " that answers"
	}
	f.mu.Unlock()
	f.hangUp(s)
}

// hangUp closes a socket at its replica.
func (f *fleet) hangUp(s *socket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, o := range f.sockets {
		if o == s {
			f.sockets = append(f.sockets[:i:i], f.sockets[i+1:]...)
			s.claim.Release()
			break
		}
	}
	if s.of.socket == s {
		s.of.socket = nil
	}
}

// halfOpen is how long a half-open socket without a newer one stays.
const halfOpen = 15 * time.Minute

// live lets devices and sockets do what they do by themselves: once a second.
func (f *fleet) live() {
	f.mu.Lock()
	now := time.Now()
	var closes []*socket
	for i, d := range f.devices {
		if s := d.socket; s != nil && !d.parked && (now.Unix()+int64(i))%4 == 0 {
			s.claim.Touch()
		}
	}
	for _, s := range f.sockets {
		if s.of.socket != s && now.Sub(s.opens) > halfOpen {
			closes = append(closes, s)
		}
	}
	f.mu.Unlock()
	for _, s := range closes {
		f.hangUp(s)
	}
	up := f.serving()
	for i, d := range f.devices {
		if d.socket == nil && len(up) > 0 && !now.Before(d.away) {
			f.connect(d, up[i%len(up)])
		}
	}
}

func (f *fleet) running() (up []*replica) {
	for _, r := range f.replicas {
		select {
		case <-r.ended: // superseded, or killed
		default:
			if r.life.running {
				up = append(up, r)
			}
		}
	}
	return up
}

// serving returns those that devices connect to.
func (f *fleet) serving() []*replica {
	up := f.running()
	if s := slices.DeleteFunc(slices.Clone(up), func(r *replica) bool { return r.idle }); len(s) > 0 {
		return s
	}
	return up
}

// pass lets time pass.
func (f *fleet) pass(d time.Duration) {
	for d > 0 {
		part := min(d, time.Second)
		time.Sleep(part)
		d -= part
		f.live()
		f.meddle()
		f.observe()
		f.checkLed()
		f.check()
	}
}

// close ends everything.
func (f *fleet) close() {
	for _, s := range f.servers {
		s.set(func() { s.up, s.refuses = true, welcome })
	}
	for _, l := range f.processes {
		l.line.kill(false)
		l.stop()
	}
	for _, l := range f.processes {
		<-l.ended
	}
	time.Sleep(2 * time.Second) // a pool that cannot connect tries once a second, closed or not
}

// check ends the test if something was found.
func (f *fleet) check() {
	f.mu.Lock()
	wrong := f.wrong
	f.mu.Unlock()
	if wrong != "" {
		f.found("%s", wrong)
	}
}

// found ends the episode.
func (f *fleet) found(format string, args ...any) {
	f.say(format, args...)
	f.mu.Lock()
	text := fmt.Sprintf(format, args...) + "\n" + strings.Join(f.trace[max(0, len(f.trace)-80):], "\n")
	f.mu.Unlock()
	panic(finding(text))
}

// finding is what an episode panics with when the oracle objects.
type finding string
