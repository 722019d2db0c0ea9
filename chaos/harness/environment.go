package harness

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/registry"
)

// A busy machine may not run a process for a second or two, and a heartbeat that late must not
// count as a death: these cannot be shorter.
const (
	Interval        = 2 * time.Second
	TTL             = 6 * time.Second
	GracePeriod     = TTL + 2*time.Second
	JanitorInterval = 3 * time.Second
	LeaseTTL        = 3 * time.Second
	LeaseRetry      = LeaseTTL / 5 * 12 / 10
	BusyMachine     = 3 * time.Second   // added to a bound
	Patience        = waittest.Patience // for events without a bound
	PatiencePause   = 20 * time.Millisecond
)

// BatchDelay is how long the network delays each guarded delete.
const BatchDelay = "BATCH_DELAY"

// Environment is a scenario's world. Its methods are for the scenario's goroutine, except those
// that traffic uses.
type Environment struct {
	*testing.T
	*redis.Client // past the proxies
	registry.Layout
	Seed     uint64
	Rand     *rand.Rand
	Server   *redistest.Server
	binary   string
	Settings map[string]string
	Struck   atomic.Int64 // processes hit on purpose
	Fleet    *Fleet
	Traffic  traffic
	claims   map[string]string // by the scenario's own registries: IMEI -> instance
	Ghosts   []string          // planted owners' devices
	Slack    time.Duration     // added to a bound
	Forgot   time.Time         // when the log was lost, with the outcome of batches
	Logins   map[string]string // instance -> "user:password@", unless the default user
	Programs map[string]string // instance -> binary, unless the usual one
	Parts    []string          // the history's, in order

	Gate     sync.RWMutex // held shared by each act of traffic, exclusively by faults that end sockets
	mu       sync.Mutex   // guards all below
	replicas []*Replica   // or stopped
	All      []*Replica   // ever
	Proxies  []*Proxy     // of every client of Redis
	told     judge.Facts  // so far
}

// New starts a Redis. settings add to the usual ones. Random choices depend on seed and stream.
func New(
	t *testing.T, binary string, seed, stream uint64, devices int, settings map[string]string,
) *Environment {
	w := &Environment{
		T: t, Seed: seed, Rand: rand.New(rand.NewPCG(seed, stream)), Slack: BusyMachine,
		binary: binary, Fleet: newFleet(devices),
		claims: make(map[string]string), Logins: make(map[string]string), Programs: make(map[string]string),
		told: judge.Facts{HeartbeatInterval: Interval, HeartbeatTTL: TTL, Planted: make(map[string]bool)},
		Settings: map[string]string{
			"HTTP_ADDR": "127.0.0.1:0", "INGEST_ADDR": "127.0.0.1:0", "LOG_FORMAT": "json",
			"HEARTBEAT_INTERVAL": Interval.String(), "HEARTBEAT_TTL": TTL.String(),
			"INGEST_FIRST_FRAME": "1h", // every second device never sends one
			"JANITOR_INTERVAL":   JanitorInterval.String(), "JANITOR_LEASE_TTL": LeaseTTL.String(),
		},
	}
	maps.Copy(w.Settings, settings)
	w.Serve(append(history.AppendOnly(), "--notify-keyspace-events", "K$g")...)
	return w
}

// Serve starts Redis, perhaps of another kind for a fault's setup.
func (w *Environment) Serve(args ...string) {
	w.Server = redistest.Start(w.T, args...)
	w.Client = w.Server.Client()
	w.Parts = []string{w.Server.Dir()}
}

// InfoOf returns a value of INFO; sections begin with a capital.
func InfoOf(t Test, c *redis.Client, section, name string) string {
	return c.InfoMap(t.Context(), section).Item(section, name)
}

// Start starts replicas one after the other, waits for each, and returns the last.
func (w *Environment) Start(ids ...string) (r *Replica) {
	w.Helper()
	for _, id := range ids {
		r = w.Launch(w.Proxy(), id)
		r.Ready()
		w.Runs(r)
	}
	return r
}

// History reads what the servers have written so far.
func (w *Environment) History() history.History {
	w.Helper()
	h, err := history.Read(w.Parts...)
	require.NoError(w, err)
	return h
}

// Proxy opens a proxy to Redis.
func (w *Environment) Proxy() *Proxy {
	l := NewProxy(w.T, w.Server.Addr())
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Proxies = append(w.Proxies, l)
	return l
}

// Launch does not wait, or count the process as running.
func (w *Environment) Launch(p *Proxy, id string) *Replica {
	p.login = w.Logins[id]
	if w.Settings[BatchDelay] != "" {
		p.DelayEach(IsBatch, w.set(BatchDelay))
	}
	r := Launch(w.T, cmp.Or(w.Programs[id], w.binary), id, p, w.Settings)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.All = append(w.All, r)
	return r
}

// Runs counts a replica as running.
func (w *Environment) Runs(r *Replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas = append(w.replicas, r)
}

// Gone undoes Runs.
func (w *Environment) Gone(r *Replica) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas = slices.DeleteFunc(slices.Clone(w.replicas), func(other *Replica) bool { return other == r })
}

// Replicas returns those that run or are stopped.
func (w *Environment) Replicas() []*Replica {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replicas
}

// Kill returns the time, and the devices that lost their sockets.
func (w *Environment) Kill(r *Replica) (at time.Time, lost []int) {
	lost = w.Ends(r, func() {
		at = time.Now()
		w.Died(r, judge.Killed)
		r.Kill()
	})
	return at, lost
}

// Ends records a replica's end while traffic pauses, and returns the devices that lost their
// sockets.
func (w *Environment) Ends(r *Replica, end func()) (lost []int) {
	w.Gate.Lock()
	defer w.Gate.Unlock()
	w.Fleet.Losing(r)
	end()
	w.Gone(r)
	return w.Fleet.LostAt(r)
}

// Stop freezes a replica until the returned function is called: a death, if it lasts as long as a
// lease.
func (w *Environment) Stop(r *Replica) (cont func()) {
	back := w.Outage(r.ID)
	d := w.death(r, judge.Stopped)
	r.Stop()
	return sync.OnceFunc(func() {
		r.Cont()
		back()
		if time.Since(d.At) > LeaseTTL {
			w.noteDeath(d)
		}
	})
}

// Meddle changes Redis as an outsider might, marked so that nobody else is blamed.
func (w *Environment) Meddle(what string, do func(p redis.Pipeliner)) {
	w.Helper()
	_, err := w.TxPipelined(w.Context(), func(p redis.Pipeliner) error {
		do(p)
		p.Set(w.Context(), history.FaultKey, what, 0)
		return nil
	})
	if !errors.Is(err, redis.Nil) {
		require.NoError(w, err)
	}
}

// Spread connects devices to the running replicas in turn.
func (w *Environment) Spread(which []int) {
	w.Helper()
	fleet := w.Replicas()
	err := w.Fleet.ConnectAll(w.Context(), which, func(i int) *Replica { return fleet[i%len(fleet)] })
	require.NoError(w, err)
}

func (w *Environment) running(id string) *Replica {
	for _, r := range w.Replicas() {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// Follower returns a replica that does not lead.
func (w *Environment) Follower() *Replica {
	others := w.Others(w.Leader())
	require.NotEmpty(w, others, "nobody follows")
	return others[0]
}

// Others returns the other running replicas.
func (w *Environment) Others(but ...*Replica) []*Replica {
	return slices.DeleteFunc(slices.Clone(w.Replicas()), func(r *Replica) bool {
		return slices.Contains(but, r)
	})
}

// HoldAll holds everything until the returned function is called.
func HoldAll(proxies []*Proxy) (release func()) {
	var holds []*proxy.Rule
	for _, p := range proxies {
		holds = append(holds, p.Hold())
	}
	return func() {
		for _, h := range holds {
			h.End()
		}
	}
}

// ProxiesOf returns the replicas' proxies.
func ProxiesOf(replicas []*Replica) (proxies []*Proxy) {
	for _, r := range replicas {
		proxies = append(proxies, r.Proxy)
	}
	return proxies
}

// Plant writes entries as an older writer does; indexed adds index and roster.
func (w *Environment) Plant(owner string, n int, indexed bool) (imeis []string) {
	w.Helper()
	w.Planted(owner)
	ctx := w.Context()
	const page = 1000
	for from := 0; from < n; from += page {
		var pairs, members []any
		for i := from; i < min(n, from+page); i++ {
			imei := fmt.Sprintf("86%013d", len(w.Ghosts)+i)
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
		require.NoError(w, err)
	}
	w.Ghosts = append(w.Ghosts, imeis...)
	return imeis
}

// Terminate asks a replica to end, and returns its exit status.
func (w *Environment) Terminate(r *Replica) (status int) {
	w.Gate.Lock()
	w.Fleet.Losing(r)
	w.Gone(r)
	r.Term()
	w.Gate.Unlock()
	status = r.Exit()
	w.Ends(r, func() {})
	return status
}

// NextLife resumes the recording on another server. Nobody may write in the meantime.
func (w *Environment) NextLife(server *redistest.Server) {
	w.Helper()
	w.Server = server
	require.NoError(w, history.Begin(w.Context(), server.Client()))
	w.Parts = append(w.Parts, server.Dir())
	Eventually(w, "the history begins", func() bool {
		_, err := history.Read(server.Dir())
		return err == nil
	})
}

// Forget takes the killed server's append-only file away.
func (w *Environment) Forget() {
	w.Helper()
	last := &w.Parts[len(w.Parts)-1]
	*last = w.TempDir()
	require.NoError(w, history.SetAside(w.Server.Dir(), *last))
}

// recordFile names the file to which a run adds its evictions.
const recordFile = "ROLLCALL_RECORD"

// Record adds today's run, on servers such as "Cluster", if a file is named.
func Record(servers string, evictions, wrong int) error {
	path := os.Getenv(recordFile)
	if path == "" || evictions == 0 && wrong == 0 {
		return nil
	}
	version, err := redistest.Version()
	if err != nil {
		return err
	}
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("harness: record: %w", err)
	}
	_, err = fmt.Fprintf(file, "%s,%s,%s,%d,%d,%s\n", time.Now().UTC().Format(time.DateOnly), servers, version,
		evictions, wrong, strings.TrimSpace(string(commit)))
	return errors.Join(err, file.Close())
}

func (w *Environment) tells(note func(f *judge.Facts)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	note(&w.told)
}

// Hit counts deliberate faults of processes.
func (w *Environment) Hit(n int) { w.Struck.Add(int64(n)) }

// Died records a death, or what looks like one, for C6.
func (w *Environment) Died(r *Replica, how string) { w.noteDeath(w.death(r, how)) }

func (w *Environment) death(r *Replica, how string) judge.Death {
	w.Hit(1)
	return judge.Death{Instance: r.ID, At: time.Now(), How: how, Led: w.Holder() == r.ID}
}

func (w *Environment) noteDeath(d judge.Death) {
	w.tells(func(f *judge.Facts) { f.Deaths = append(f.Deaths, d) })
}

// Outage records that an instance ("": everybody) cannot reach Redis until the returned function is
// called.
func (w *Environment) Outage(id string) (back func()) {
	var n int
	w.tells(func(f *judge.Facts) {
		n = len(f.Outages)
		now := time.Now()
		f.Outages = append(f.Outages, judge.Outage{Instance: id, From: now, Until: now.Add(time.Hour)})
	})
	return func() { w.tells(func(f *judge.Facts) { f.Outages[n].Until = time.Now() }) }
}

// CountersBeginAnew records that do restarts the server's counters.
func (w *Environment) CountersBeginAnew(do func()) {
	begun := time.Now()
	do()
	took := judge.Outage{From: begun, Until: time.Now()}
	w.tells(func(f *judge.Facts) { f.Restarts = append(f.Restarts, took) })
}

// Planted records that the scenario itself writes an owner's entries.
func (w *Environment) Planted(owner string) {
	w.tells(func(f *judge.Facts) { f.Planted[owner] = true })
}

// SlowerSettings records that an instance has its own, and the others know.
func (w *Environment) SlowerSettings(r *Replica, interval, ttl time.Duration) {
	s := judge.Setting{Instance: r.ID, HeartbeatInterval: interval, HeartbeatTTL: ttl, From: time.Now()}
	w.tells(func(f *judge.Facts) { f.Settings = append(f.Settings, s) })
}

// SlowerSettingsEnd records that it has ended.
func (w *Environment) SlowerSettingsEnd(r *Replica) {
	w.tells(func(f *judge.Facts) {
		for i := range f.Settings {
			if s := &f.Settings[i]; s.Instance == r.ID && s.Until.IsZero() {
				s.Until = time.Now()
			}
		}
	})
}

// Executed records devices' commands; without arguments it only starts the record.
func (w *Environment) Executed(did ...judge.Execution) {
	w.tells(func(f *judge.Facts) {
		if f.Executed == nil {
			f.Executed = []judge.Execution{}
		}
		f.Executed = append(f.Executed, did...)
	})
}
