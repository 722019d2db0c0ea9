//go:build packs

package packs_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/registry"
)

// rules are those of a pack, with times that a test can wait for.
func rules(t *testing.T, pack string) []orphan.Rule {
	t.Helper()
	text, ok := orphan.Pack(pack)
	require.True(t, ok)
	rules, err := orphan.Parse(text)
	require.NoError(t, err)
	for i, r := range rules {
		rules[i].Grace = time.Second
		if r.MinAge != nil {
			rules[i].MinAge.Over = time.Second
		}
	}
	return rules
}

// A worker sweeps beside the library: the engine in this process.
type worker struct {
	t      *testing.T
	mu     sync.Mutex
	passes map[string]int
	last   map[string]orphan.Result
}

func startWorker(t *testing.T, server *redistest.Server) *worker {
	t.Helper()
	w := &worker{t: t, passes: map[string]int{}, last: map[string]orphan.Result{}}
	client := func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	data, control := client(server.Options()), client(lease.Options(server.Options()))
	logger := slog.New(slog.DiscardHandler)
	reg, err := registry.New(registry.Config{
		Client: data, Control: control, HeartbeatInterval: time.Second, HeartbeatTTL: 5 * time.Second,
		Drain: time.Second, Logger: logger,
	})
	require.NoError(t, err)
	set, err := orphan.New(orphan.Config{
		Rules: rules(t, "bullmq"), Client: data, Interval: 500 * time.Millisecond, Logger: logger,
		Passed: func(r orphan.Result) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.last[r.Rule] = r
			if r.Full && r.Outcome == janitor.Done {
				w.passes[r.Rule]++
			}
		},
	})
	require.NoError(t, err)
	jan, err := janitor.New(janitor.Config{
		Client: data, Control: control, Registry: reg, Sweeps: set.Sweeps(), Logger: logger,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	replica := pool.New().WithContext(ctx)
	replica.Go(reg.Run)
	replica.Go(jan.Run)
	t.Cleanup(func() {
		stop()
		require.NoError(t, replica.Wait())
		if t.Failed() {
			t.Logf("the last passes: %+v", w.last)
		}
	})
	return w
}

// looks waits for several full passes of each rule that begin after now.
func (w *worker) looks() {
	w.t.Helper()
	w.mu.Lock()
	before := map[string]int{}
	for rule, n := range w.passes {
		before[rule] = n
	}
	w.mu.Unlock()
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for rule, n := range before {
			if w.passes[rule] < n+6 {
				return false
			}
		}
		return true
	}, patience, 50*time.Millisecond, "passes of each rule")
}
