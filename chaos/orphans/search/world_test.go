package search

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/episodes"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan"
)

// world is one episode: servers, workers, and a backend.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	s        *server
	cluster  bool
	fields   bool          // fields of hashes expire
	far      time.Duration // that each move to a bin of a Cluster takes
	clock    *clock
	rdb, eye redis.UniversalClient // the backend's, and the oracle's, which sees the real clock
	layout   guard.Layout
	interval time.Duration
	rules    []*rule
	all      []*candidate
	workers  []*worker
	lives    int
	in       map[string]bool // rules that workers have
	dry      bool
	jumps    []jump
	down     int    // the shard whose master is dead; -1: none
	apart    int    // the shard whose replica does not follow; -1: none
	moving   func() // what ends the move of a slot; nil: none is on its way

	turn sync.Mutex // of who takes a step: the test, or a worker that has met a trap
	// busy is held for reading while a worker's commands are under way, so that a trap springs between
	// two of them.
	busy  sync.RWMutex
	traps sync.Mutex
	trap  *trap

	mu     sync.Mutex // what workers touch
	probes map[string]*candidate
	owners map[string]*candidate // of candidates' keys
	docs   map[string]orphan.Document
	away   bool // the source
	bare   bool // the database has lost its documents
	// bystanders are keys that are no candidates.
	bystanders []string
	refreshed  int // fields, so far
	moment     int // numbers looks and changes
	cut        map[string]time.Time
	cutAll     []cut
	removed    int
	atLeast    bool // a server has forgotten some of what was counted
	trace      []string
	wrong      finding
	episodes.Tally
}

// What is counted.
const (
	removed    = "candidates removed"
	restored   = "restored"
	sprung     = "traps sprung"
	slotsMoved = "slots moved"
	failovers  = "failovers"
	promoted   = "promotions of what was behind"
)

// jump is a step of the servers' clock while a worker led.
type jump struct {
	at     time.Time
	leader string
}

func newWorld(t *testing.T, s *server, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 3)), s: s, cluster: s.cluster != nil, in: map[string]bool{}, down: -1, apart: -1,
		probes: map[string]*candidate{}, owners: map[string]*candidate{},
		docs: map[string]orphan.Document{"other": {"status": "ongoing"}},
		cut:  map[string]time.Time{},
	}
	w.interval = []time.Duration{40 * time.Second, 2 * time.Minute, 10 * time.Minute}[w.rng.IntN(3)]
	if w.cluster {
		w.layout.Prefix = "{cleanup}:"
		w.far = []time.Duration{0, 0, 20 * time.Millisecond}[w.rng.IntN(3)]
	}
	w.clock = &clock{cluster: w.cluster, masters: map[string]*master{}, shas: map[string]string{}}
	w.survey()
	w.rdb, w.eye = w.own(&line{c: w.clock}), w.own(nil)
	err := w.masterOf("none").Do(t.Context(), "HPEXPIRETIME", "none", "FIELDS", 1, "f").Err()
	w.fields = err == nil || errors.Is(err, redis.Nil)
	for i := range 1 + w.rng.IntN(3) {
		w.addRule(i)
	}
	w.start()
	w.start()
	return w
}

// survey takes the present masters for those whose clock is moved.
func (w *world) survey() {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	was := w.clock.masters
	w.clock.masters = map[string]*master{}
	for i := range w.s.pairs {
		if i == w.down {
			continue
		}
		addr := w.s.master(i).Addr()
		port := portOf(addr)
		m := was[port]
		if m == nil {
			m = &master{db: redis.NewClient(patient(w.options(addr))), tag: tags[i]}
		}
		delete(was, port)
		m.at = time.Time{}
		w.clock.masters[port] = m
	}
	for _, m := range was {
		_ = m.db.Close()
	}
}

// masterOf is a client of the real clock of the master that had a key at first.
func (w *world) masterOf(key string) *redis.Client {
	return w.clock.masters[portOf(w.s.master(w.s.shard(key)).Addr())].db
}

// patient options are for a server that may have been restarted.
func patient(o *redis.Options) *redis.Options {
	o.MaxRetries, o.MinRetryBackoff = 100, -1
	return o
}

// own makes a client for the model; without a line it sees the real clock.
func (w *world) own(l *line) redis.UniversalClient {
	hook := func(c *redis.Client) {
		if l != nil {
			c.AddHook(redistest.Intercept(wire{l, c.Options().Addr}.send))
		}
	}
	if !w.cluster {
		c := redis.NewClient(patient(w.options(w.s.master(0).Addr())))
		hook(c)
		return c
	}
	o := w.clusterOptions()
	o.MaxRedirects, o.MaxRetries, o.MinRetryBackoff = 20, 100, -1
	c := redis.NewClusterClient(o)
	c.OnNewNode(hook)
	return c
}

// roomy is a pool that nobody waits for: go-redis waits with timers that bubbles would share.
const roomy = 200

// options are those of a client in the bubble.
func (w *world) options(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, ContextTimeoutEnabled: true,
		Dialer: dial, ConnMaxIdleTime: -1, MaxRetries: -1, Protocol: 2, DisableIdentity: true, PoolSize: roomy, PipelinePoolSize: -1,
	}
}

func (w *world) clusterOptions() *redis.ClusterOptions {
	return &redis.ClusterOptions{
		Addrs: w.s.addrs(), Dialer: dial, ConnMaxIdleTime: -1, MaxRetries: -1, Protocol: 2, DisableIdentity: true,
		ContextTimeoutEnabled: true, PoolSize: roomy, PipelinePoolSize: -1,
	}
}

func (w *world) close() {
	w.end(true)
	if w.down >= 0 {
		w.s.outside(func() { w.s.failOver(w.down) })
	}
	if w.moving != nil {
		w.s.outside(w.moving)
	}
	for _, m := range w.clock.masters {
		_ = m.db.Close()
	}
	_, _ = w.rdb.Close(), w.eye.Close()
}

// finding is what is wrong.
type finding string

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(format, args...)
}

// note is say for callers that hold mu.
func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// found notes what is wrong, where mu is held.
func (w *world) found(format string, args ...any) {
	if w.wrong == "" {
		w.note(format, args...)
		w.wrong = finding(strings.Join(w.trace[max(0, len(w.trace)-80):], "\n"))
	}
}

// sleep lets time pass, and ends the episode if something was found meanwhile.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.wrong != "" {
		panic(w.wrong)
	}
}

// outside runs something that waits for processes.
func (w *world) outside(f func()) {
	if !w.s.outside(f) {
		w.change(func() { w.found("a server does not do as it is told") })
	}
}

func (w *world) chance(n, of int) bool { return w.rng.IntN(of) < n }

// do runs commands of the backend.
func (w *world) do(f func(ctx context.Context, p redis.Pipeliner)) {
	ctx := context.Background()
	pipelined := w.rdb.TxPipelined
	if w.cluster { // its keys are in several slots
		pipelined = w.rdb.Pipelined
	}
	_, err := pipelined(ctx, func(p redis.Pipeliner) error { f(ctx, p); return nil })
	for errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) { // of before a restart
		_, err = pipelined(ctx, func(p redis.Pipeliner) error { f(ctx, p); return nil })
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		w.change(func() { w.found("the backend: %v", err) })
	}
}

// source is the database, as a worker asks it.
type source struct {
	w *world
	k *worker
}

var errSource = errors.New("search: the database is away")

func (s source) Documents(_ context.Context, q orphan.Query) (map[string]orphan.Document, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.w.away {
		return nil, errSource
	}
	found := map[string]orphan.Document{}
	for _, id := range q.IDs {
		if s.w.bare {
			break
		}
		if d, ok := s.w.docs[id]; ok {
			found[id] = d
		}
		if c := s.w.probes["DOC "+id]; c != nil {
			s.w.looked(s.k, c)
		}
	}
	return found, nil
}

func (s source) Empty(context.Context, string) (bool, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.w.away {
		return false, errSource
	}
	return s.w.bare, nil
}
