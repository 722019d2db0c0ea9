//go:build colyseus

package colyseus_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
	"github.com/rollcall-redis/rollcall/registry"
)

// A worker sweeps beside the game: the engine in this process, with the rules that are shipped.
type worker struct {
	g    *game
	set  *orphan.Set
	logs *logs

	mu     sync.Mutex // of what follows
	passes map[string][]orphan.Result
}

// shipped are the shipped rules, with a grace that a test can wait for. A reservation is old
// after five minutes, and has to be condemned for a second. Other ages are as they are shipped. A
// test makes its keys old.
func shipped() []rules.Rule {
	all := rules.Colyseus()
	for i, r := range all {
		if r.GoneIf == nil { // absence has to last
			all[i].Grace = time.Second
		}
		if r.MinAge != nil && r.MinAge.FromTTL > 0 {
			r.MinAge.FromTTL, r.MinAge.Over = r.MinAge.FromTTL-5*time.Minute, time.Second
		}
	}
	return all
}

// startWorker starts a worker whose full passes are half a second apart.
func startWorker(g *game, source orphan.Source) *worker {
	g.t.Helper()
	w := &worker{g: g, logs: &logs{}, passes: map[string][]orphan.Result{}}
	logger := slog.New(slog.NewTextHandler(w.logs, nil))
	client := func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		g.t.Cleanup(func() { _ = c.Close() })
		return c
	}
	data, control := client(g.server.Options()), client(lease.Options(g.server.Options()))
	reg, err := registry.New(registry.Config{
		Client: data, Control: control, HeartbeatInterval: time.Second, HeartbeatTTL: 5 * time.Second,
		Drain: time.Second, Logger: logger,
	})
	require.NoError(g.t, err)
	w.set, err = orphan.New(orphan.Config{
		Rules: shipped(), Client: data, Source: source, Interval: 500 * time.Millisecond, Passed: w.passed,
		Logger: logger,
	})
	require.NoError(g.t, err)
	jan, err := janitor.New(janitor.Config{
		Client: data, Control: control, Registry: reg, Sweeps: w.set.Sweeps(), Logger: logger,
	})
	require.NoError(g.t, err)

	ctx, stop := context.WithCancel(context.Background())
	replica := pool.New().WithContext(ctx)
	replica.Go(reg.Run)
	replica.Go(jan.Run)
	g.t.Cleanup(func() {
		stop()
		require.NoError(g.t, replica.Wait())
		if g.t.Failed() {
			g.t.Logf("the worker wrote:\n%s", w.logs)
		}
	})
	return w
}

func (w *worker) passed(r orphan.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passes[r.Rule] = append(w.passes[r.Rule], r)
}

// await waits for n passes of a rule, begun from now on, that end like this, and returns the last
// one. They are full, unless they are held: the breaker puts off full passes.
func (w *worker) await(rule string, n int, outcome janitor.Outcome, reason string) (last orphan.Result) {
	w.g.t.Helper()
	begun := time.Now()
	w.g.eventually("passes of "+rule+", "+string(outcome)+" "+reason, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		found := 0
		for _, r := range w.passes[rule] {
			if (r.Full || outcome == janitor.Held) && r.Started.After(begun) && r.Outcome == outcome && r.Reason == reason {
				found, last = found+1, r
			}
		}
		return found >= n
	})
	return last
}

// looks waits until the worker has looked at all reservations several times, each time more than a
// grace after the first: whatever it takes for dead is gone by then.
func (w *worker) looks() orphan.Result {
	w.g.t.Helper()
	return w.await("reservations", 6, janitor.Done, "")
}

// logs is a log that is written and read at once.
type logs struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A recorder is told by Redis itself of each key that somebody deletes or moves away.
type recorder struct {
	mu   sync.Mutex
	gone map[string]int // key -> times
}

// record begins to listen. Redis tells of each deletion of this server, in the order of its
// commands.
func (g *game) record() *recorder {
	g.t.Helper()
	r := &recorder{gone: map[string]int{}}
	const of = "__keyevent@0__:"
	sub := g.rdb.PSubscribe(g.t.Context(), of+"del", of+"rename_from", of+"expired")
	for range 3 {
		_, err := sub.Receive(g.t.Context())
		require.NoError(g.t, err)
	}
	told := make(chan struct{})
	go func() {
		defer close(told)
		for m := range sub.Channel(redis.WithChannelSize(10000)) {
			r.mu.Lock()
			r.gone[m.Payload]++
			r.mu.Unlock()
		}
	}()
	g.t.Cleanup(func() {
		_ = sub.Close()
		<-told
	})
	return r
}

// of are the names behind a prefix that were deleted, in order, each as often as it was.
func (r *recorder) of(prefix string) (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, n := range r.gone {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			names = append(names, slices.Repeat([]string{name}, n)...)
		}
	}
	return sorted(names)
}

// logged are the candidates of a rule that a worker's log names, in order.
func (g *game) logged(layout guard.Layout, rule string) (names []string) {
	g.t.Helper()
	records, err := g.rdb.XRange(g.t.Context(), layout.Log(), "-", "+").Result()
	require.NoError(g.t, err)
	for _, record := range records {
		keys, settled := record.Values["keys"].(string) // else intents
		if record.Values["sweep"] == rule && settled {
			var gone []string
			require.NoError(g.t, json.Unmarshal([]byte(keys), &gone))
			names = append(names, gone...)
		}
	}
	return sorted(names)
}

// A matches collection, as the backend's database has it.
type matches map[string]orphan.Document

func (m matches) Documents(_ context.Context, q orphan.Query) (map[string]orphan.Document, error) {
	found := maps.Clone(m)
	maps.DeleteFunc(found, func(id string, _ orphan.Document) bool { return !slices.Contains(q.IDs, id) })
	return found, nil
}

func (m matches) Empty(context.Context, string) (bool, error) { return len(m) == 0, nil }
