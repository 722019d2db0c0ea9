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
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/orphan"
)

// world is one episode: a server, its workers, and a backend.
type world struct {
	t        *testing.T
	rng      *rand.Rand
	s        *server
	o        *redis.Options
	cluster  []string // its nodes; nil: it is none
	fields   bool     // fields of hashes expire
	clock    *clock
	rdb      *redis.Client // the backend's
	layout   guard.Layout
	interval time.Duration
	rules    []*rule
	all      []*candidate
	workers  []*worker
	lives    int
	in       map[string]bool // rules that workers have
	dry      bool
	jumps    []jump

	mu     sync.Mutex // what workers touch
	probes map[string]*candidate
	docs   map[string]orphan.Document
	away   bool // the source
	// bystanders are keys that are no candidates.
	bystanders []string
	refreshed  int // fields, so far
	cut        map[string]time.Time
	cutAll     time.Time
	means      map[string]string // the meaning of each rule's last pass
	trace      []string
	wrong      finding
	tally
}

// jump is a step of the server's clock while a worker led.
type jump struct {
	at     time.Time
	leader string
}

func newWorld(t *testing.T, s *server, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 3)), s: s, o: s.Options(), in: map[string]bool{},
		probes: map[string]*candidate{}, docs: map[string]orphan.Document{"other": {"status": "ongoing"}},
		cut: map[string]time.Time{}, means: map[string]string{},
	}
	w.holds = map[string]int{}
	w.interval = []time.Duration{20 * time.Second, 2 * time.Minute, 10 * time.Minute}[w.rng.IntN(3)]
	if s.cluster {
		w.cluster, w.layout = []string{s.Addr()}, guard.Layout{Prefix: "{cleanup}:"}
	}
	again := func() *redis.Client { // the server may have been restarted
		o := w.options()
		o.MaxRetries, o.MinRetryBackoff = 100, -1
		return redis.NewClient(o)
	}
	w.clock = &clock{db: again(), shas: map[string]string{}}
	w.rdb = again()
	w.rdb.AddHook(&line{c: w.clock})
	require.NoError(t, w.clock.db.FlushAll(t.Context()).Err())
	err := w.clock.db.Do(t.Context(), "HPEXPIRETIME", "none", "FIELDS", 1, "f").Err()
	w.fields = err == nil || errors.Is(err, redis.Nil)
	for i := range 1 + w.rng.IntN(3) {
		w.addRule(i)
	}
	w.start()
	w.start()
	w.sleep(4 * time.Minute) // the witness has listened
	return w
}

// roomy is a pool that nobody waits for: go-redis waits with timers that bubbles would share.
const roomy = 200

// options are those of a client in the bubble.
func (w *world) options() *redis.Options {
	o := *w.o
	o.Dialer, o.ConnMaxIdleTime, o.MaxRetries, o.Protocol = dial, -1, -1, 2
	o.DisableIdentity, o.PoolSize, o.PipelinePoolSize = true, roomy, -1
	return &o
}

func (w *world) clusterOptions() *redis.ClusterOptions {
	o := w.options()
	return &redis.ClusterOptions{
		Addrs: w.cluster, Dialer: o.Dialer, ConnMaxIdleTime: -1, MaxRetries: -1, Protocol: 2, DisableIdentity: true,
		ContextTimeoutEnabled: true,
	}
}

func (w *world) close() {
	w.end(true)
	_, _ = w.rdb.Close(), w.clock.db.Close()
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

func (w *world) chance(n, of int) bool { return w.rng.IntN(of) < n }

// do runs commands of the backend.
func (w *world) do(f func(ctx context.Context, p redis.Pipeliner)) {
	ctx := context.Background()
	pipelined := w.rdb.TxPipelined
	if w.cluster != nil { // its keys are in several slots
		pipelined = w.rdb.Pipelined
	}
	_, err := pipelined(ctx, func(p redis.Pipeliner) error { f(ctx, p); return nil })
	for errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) { // of before a restart
		_, err = pipelined(ctx, func(p redis.Pipeliner) error { f(ctx, p); return nil })
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		panic(finding("the backend: " + err.Error()))
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
	return false, nil
}
