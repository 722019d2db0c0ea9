package chaos

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// Durations, scaled down so that a scenario takes seconds, and no further: on a busy machine a process may not run
// for a second or two, and a heartbeat that is late by that must not be a death.
const (
	interval      = 2 * time.Second
	ttl           = 6 * time.Second
	warm          = ttl + 2*time.Second
	janitorEvery  = 3 * time.Second
	leaseTTL      = 3 * time.Second
	leaseRetry    = leaseTTL / 5 * 12 / 10
	busy          = 3 * time.Second // what a busy machine may add to a bound
	patience      = 2 * time.Minute // for what has no bound but must come
	patiencePause = 20 * time.Millisecond
)

// becomes polls until cond is true; false if patience is over.
func becomes(cond func() bool) bool {
	tick := time.NewTicker(patiencePause)
	defer tick.Stop()
	for late := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(late) {
			return false
		}
	}
	return true
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.True(t, becomes(cond), "waited in vain until %s", what)
}

// base is what a scenario has: a Redis that writes its history, replicas each behind a line of its own, devices that
// know where their sockets are. Its methods are for the scenario's goroutine, but for what traffic uses.
type base struct {
	*redis.Client // straight to the server
	registry.Layout
	t        *testing.T
	seed     uint64
	rnd      *rand.Rand
	server   *redistest.Server
	binary   string
	settings map[string]string
	struck   atomic.Int64 // processes that were killed, stopped or cut off by intent
	devices  *devices
	traffic  traffic
	claims   map[string]string // held by registries of the scenario itself: IMEI -> instance
	planted  map[string]bool   // owners whose entries the scenario wrote itself
	ghosts   []string          // the devices of those
	slack    time.Duration     // what a busy machine may add to a bound
	forgot   time.Time         // when the audit was lost, and with it the fate of batches
	logins   map[string]string // by instance: "user:password@", of who does not use the default user
	parts    []string          // where the history is, in order
	stream   *history.Follower // that writes the last of them, unless the server does

	gate     sync.RWMutex  // held shared by each act of traffic, alone by what ends sockets
	mu       sync.Mutex    // guards all below
	replicas []*replica    // that run, or are stopped
	all      []*replica    // ever
	proxies  []*redisProxy // of everybody who speaks to Redis
	outages  []judge.Outage
	restarts []judge.Outage
	odd      []judge.Setting
	deaths   []judge.Death
	lookups  []judge.Lookup
	executed []judge.Execution
}

// newBase starts a Redis, and nothing else yet. Devices are that many; settings are besides the usual
// ones of replicas, which are processes of binary. What is drawn at random depends on seed and stream.
func newBase(t *testing.T, binary string, seed, stream uint64, devices int, settings map[string]string) *base {
	w := &base{
		t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, stream)), slack: busy, binary: binary, devices: newDevices(devices),
		claims: make(map[string]string), planted: make(map[string]bool), logins: make(map[string]string),
		settings: map[string]string{
			"HTTP_ADDR": "127.0.0.1:0", "INGEST_ADDR": "127.0.0.1:0", "LOG_FORMAT": "json",
			"HEARTBEAT_INTERVAL": interval.String(), "HEARTBEAT_TTL": ttl.String(),
			"JANITOR_INTERVAL": janitorEvery.String(), "JANITOR_LEASE_TTL": leaseTTL.String(),
		},
	}
	maps.Copy(w.settings, settings)
	w.serve(append(history.AppendOnly(), "--notify-keyspace-events", "K$g")...)
	return w
}

// serve starts the Redis of this world. A fault's setup may start another kind.
func (w *base) serve(args ...string) {
	w.server = redistest.Start(w.t, args...)
	w.Client = w.server.Client()
	w.parts = []string{w.server.Dir()}
}

// lasting lets a fault last.
func lasting(d time.Duration) { <-time.After(d) }

// infoOf is one value of INFO.
func infoOf(t *testing.T, c *redis.Client, section, name string) string {
	for line := range strings.Lines(c.Info(t.Context(), section).Val()) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// start starts a replica behind a line of its own, and waits until it is ready.
func (w *base) start(id string) *replica {
	w.t.Helper()
	r := w.launch(id)
	r.ready()
	w.running(r)
	return r
}

// line opens a way to Redis.
func (w *base) proxy() *redisProxy {
	l := newProxy(w.t, w.server.Addr())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.proxies = append(w.proxies, l)
	return l
}

// launch starts a process and does not wait for anything. It is not one of the running replicas yet.
func (w *base) launch(id string) *replica { return w.launchBehind(w.proxy(), id) }

// launchBehind is launch with a proxy that is there already.
func (w *base) launchBehind(p *redisProxy, id string) *replica {
	p.login = w.logins[id]
	r := launch(w.t, w.binary, id, p, w.settings)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, r)
	return r
}

func (w *base) running(r *replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas = append(w.replicas, r)
}

// gone notes that a replica does not run any more.
func (w *base) gone(r *replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas = slices.DeleteFunc(slices.Clone(w.replicas), func(other *replica) bool { return other == r })
}

// fleet are the replicas that run, or are stopped.
func (w *base) fleet() []*replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replicas
}

// hit counts what was done to processes by intent.
func (w *base) hit(n int) { w.struck.Add(int64(n)) }

// died notes a death, or what looks like one from Redis, for C6.
func (w *base) died(r *replica, how string) {
	w.hit(1)
	d := judge.Death{Instance: r.id, At: time.Now(), How: how, Led: w.holder() == r.id}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deaths = append(w.deaths, d)
}

// away notes that an instance ("": everybody) cannot exchange messages with Redis, until the returned function is called.
func (w *base) away(id string) (back func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.outages)
	w.outages = append(w.outages, judge.Outage{Instance: id, From: time.Now(), Until: time.Now().Add(time.Hour)})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.outages[n].Until = time.Now()
	}
}

// anew notes that the server's counters begin anew while do runs.
func (w *base) anew(do func()) {
	begun := time.Now()
	do()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.restarts = append(w.restarts, judge.Outage{From: begun, Until: time.Now()})
}

// kill kills a replica and returns when, and the devices whose sockets went with it.
func (w *base) kill(r *replica) (at time.Time, lost []int) {
	w.gate.Lock()
	defer w.gate.Unlock()
	w.devices.losing(r)
	at = time.Now()
	w.died(r, judge.Killed)
	r.Kill()
	w.gone(r)
	return at, w.devices.lost(r)
}

// ended notes the end of a replica that ended by itself: its sockets are gone.
func (w *base) ended(r *replica) (lost []int) {
	w.gate.Lock()
	defer w.gate.Unlock()
	w.devices.losing(r)
	w.gone(r)
	return w.devices.lost(r)
}

// stop freezes a replica until the returned function is called. That looks like a death if it lasts as long as a lease.
func (w *base) stop(r *replica) (cont func()) {
	back := w.away(r.id)
	d := judge.Death{Instance: r.id, At: time.Now(), How: judge.Stopped, Led: w.holder() == r.id}
	w.hit(1)
	r.stop()
	return sync.OnceFunc(func() {
		r.cont()
		back()
		if time.Since(d.At) > leaseTTL {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.deaths = append(w.deaths, d)
		}
	})
}

// meddle changes Redis as somebody might who is not part of this: an operator, a mistake, a loss. It is marked in the history as
// such, so that nobody else is blamed.
func (w *base) meddle(what string, do func(p redis.Pipeliner)) {
	w.t.Helper()
	_, err := w.TxPipelined(w.t.Context(), func(p redis.Pipeliner) error {
		do(p)
		p.Set(w.t.Context(), history.FaultKey, what, 0)
		return nil
	})
	if !errors.Is(err, redis.Nil) {
		require.NoError(w.t, err)
	}
}

// spread connects devices to the running replicas by turns.
func (w *base) spread(which []int) {
	w.t.Helper()
	fleet := w.fleet()
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), which, func(i int) *replica { return fleet[i%len(fleet)] }))
}

// leader waits until one of the running replicas holds the lease, and returns it.
func (w *base) leader() (leader *replica) {
	w.t.Helper()
	eventually(w.t, "a running replica leads", func() bool {
		leader = nil
		holder := w.holder()
		for _, r := range w.fleet() {
			if r.id == holder {
				leader = r
			}
		}
		return leader != nil
	})
	return leader
}

// follower is a replica that does not lead.
func (w *base) follower() *replica {
	leader := w.leader()
	for _, r := range w.fleet() {
		if r != leader {
			return r
		}
	}
	require.Fail(w.t, "nobody follows")
	return nil
}

// holder is the instance that has the lease, "" if it is free.
func (w *base) holder() string {
	id, _, _ := strings.Cut(w.Get(w.t.Context(), w.Lease()).Val(), "/")
	return id
}

// listened waits until the witness has been heard for long enough that deletes may begin.
func (w *base) listened() {
	w.t.Helper()
	eventually(w.t, "the witness has listened for WARM", func() bool {
		s, err := w.leader().status()
		return err == nil && s.Janitor.Leading && !s.Janitor.Witness.LastTick.IsZero() && s.Janitor.Witness.WarmIn == 0
	})
}

// plant writes entries of an owner that has no process, plainly, as an older writer does; indexed: and registers them in its
// index and on the roster. It returns the IMEIs.
func (w *base) plant(owner string, n int, indexed bool) (imeis []string) {
	w.t.Helper()
	w.planted[owner] = true
	ctx := w.t.Context()
	const page = 1000
	for from := 0; from < n; from += page {
		var pairs, members []any
		for i := from; i < min(n, from+page); i++ {
			imei := fmt.Sprintf("86%013d", len(w.ghosts)+i)
			imeis = append(imeis, imei)
			pairs = append(pairs, imei, owner)
			members = append(members, imei)
		}
		_, err := w.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, w.Registry(), pairs...)
			if indexed {
				p.SAdd(ctx, w.Devices(owner), members...)
				p.SAdd(ctx, w.Roster(), owner)
			}
			return nil
		})
		require.NoError(w.t, err)
	}
	w.ghosts = append(w.ghosts, imeis...)
	return imeis
}

// inPass waits until the leader is in the middle of evicting: after n more batches.
func (w *base) inPass(n int64) {
	w.t.Helper()
	before := w.XLen(w.t.Context(), w.Audit()).Val()
	eventually(w.t, "a pass is under way", func() bool { return w.XLen(w.t.Context(), w.Audit()).Val() >= before+n })
}

// beats waits until every running replica has beaten n times.
func (w *base) beats(n int) {
	w.t.Helper()
	for _, r := range w.fleet() {
		var last time.Time
		for left := n; left >= 0; left-- { // the first is the one that was before
			eventually(w.t, "replica "+r.id+" beats", func() bool {
				s, err := r.status()
				if err != nil || s.Registry.LastBeat.Equal(last) {
					return false
				}
				last = s.Registry.LastBeat
				return true
			})
		}
		n = min(n, 1) // meanwhile the others have beaten as often
	}
}

// oneLeads waits until exactly one of the running replicas says that it leads, and it is the holder of the lease.
func (w *base) oneLeads() *replica {
	w.t.Helper()
	var leader *replica
	eventually(w.t, "exactly one replica leads", func() bool {
		leader = nil
		holder, leaders := w.holder(), 0.0
		for _, r := range w.fleet() {
			says, err := r.metric("janitor_leader")
			if err != nil {
				return false
			}
			leaders += says
			if says == 1 && r.id == holder {
				leader = r
			}
		}
		return leaders == 1 && leader != nil
	})
	return leader
}

// leaves has a replica end gracefully.
func (w *base) leaves(r *replica) {
	w.gate.Lock()
	defer w.gate.Unlock()
	w.devices.losing(r)
	r.term()
	require.Zero(w.t, r.exit(), r.Log())
	w.gone(r)
	w.devices.lost(r)
}

// terminate asks a replica to end, and returns its exit status. Devices go on meanwhile, elsewhere.
func (w *base) terminate(r *replica) (status int) {
	w.gate.Lock()
	w.devices.losing(r)
	w.gone(r)
	r.term()
	w.gate.Unlock()
	status = r.exit()
	w.ended(r)
	return status
}

// slower notes that an instance has other settings than the others, of which they have heard.
func (w *base) slower(r *replica, interval, ttl time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.odd = append(w.odd, judge.Setting{Instance: r.id, HeartbeatInterval: interval, HeartbeatTTL: ttl, From: time.Now()})
}

// slowerEnded notes that such an instance has ended.
func (w *base) slowerEnded(r *replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.odd {
		if w.odd[i].Instance == r.id && w.odd[i].Until.IsZero() {
			w.odd[i].Until = time.Now()
		}
	}
}

// nextLife goes on recording at a server that does not go on where the last one's history ends. Nobody may write meanwhile.
func (w *base) nextLife(server *redistest.Server, why string) {
	w.t.Helper()
	if w.stream != nil {
		require.NoError(w.t, w.stream.Close())
	}
	part := filepath.Join(w.t.TempDir(), "life-"+strconv.Itoa(len(w.parts)))
	to, err := os.Create(part)
	require.NoError(w.t, err)
	f, err := history.Follow(w.t.Context(), server.Addr(), why, to)
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		require.NoError(w.t, f.Close())
		require.NoError(w.t, to.Close())
	})
	w.stream, w.server = f, server
	w.parts = append(w.parts, part)
}

// executes notes what a device did on command.
func (w *base) executes(e judge.Execution) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.executed = append(w.executed, e)
}
