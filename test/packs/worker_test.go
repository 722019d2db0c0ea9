//go:build packs

package packs_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
	"github.com/rollcall-redis/rollcall/registry"
)

// packed are the rules of a pack, with a grace that a test can wait for; 0: that of the pack.
func packed(t *testing.T, pack string, grace time.Duration) []rules.Rule {
	t.Helper()
	text, ok := rules.Pack(pack)
	require.True(t, ok)
	all, err := rules.Parse(text)
	require.NoError(t, err)
	for i, r := range all {
		all[i].Grace = cmp.Or(grace, r.Grace)
		if r.MinAge != nil {
			all[i].MinAge.Over = time.Second
		}
		for _, s := range r.KeepIf {
			if s.JSON != nil {
				s.JSON.Within = min(s.JSON.Within, 10*time.Second)
			}
		}
	}
	return all
}

// apart is the interval of full passes. A machine with much else to do takes seconds for one, and a
// gap of more than twice that begins a grace anew.
const apart = 6 * time.Second

// layout is that of the program cleanup.
var layout = guard.Layout{Prefix: "{cleanup}:"}

// A worker sweeps beside the library: the engine in this process.
type worker struct {
	t      *testing.T
	rdb    *redis.Client
	mu     sync.Mutex
	passes map[string]int
	last   map[string]orphan.Result
}

func startWorker(t *testing.T, server *redistest.Server, pack string, grace time.Duration) *worker {
	t.Helper()
	w := &worker{t: t, rdb: server.Client(), passes: map[string]int{}, last: map[string]orphan.Result{}}
	client := func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	data, control := client(server.Options()), client(lease.Options(server.Options()))
	// Redis was listened to for hours.
	timing := guard.Timing{Interval: time.Second, TTL: 5 * time.Second}
	_, err := guard.New(data, data, layout, timing, "nobody").Tick(t.Context())
	require.NoError(t, err)
	since := time.Now().Add(-10 * time.Hour).UnixMilli()
	require.NoError(t, w.rdb.HSet(t.Context(), layout.Witness(), "since", since).Err())
	logger := slog.New(slog.DiscardHandler)
	reg, err := registry.New(registry.Config{
		Client: data, Control: control, HeartbeatInterval: time.Second, HeartbeatTTL: 5 * time.Second,
		Drain: time.Second, Layout: layout, Logger: logger,
	})
	require.NoError(t, err)
	set, err := orphan.New(orphan.Config{
		Rules: packed(t, pack, grace), Client: data, Layout: layout, Interval: apart, Logger: logger,
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

// grow makes all that is marked by now older by d.
func (w *worker) grow(d time.Duration) {
	w.t.Helper()
	ctx := w.t.Context()
	for _, key := range w.rdb.Keys(ctx, layout.Prefix+"orphan:marks:*").Val() {
		for name, mark := range w.rdb.HGetAll(ctx, key).Val() {
			at, rest, _ := strings.Cut(mark, " ")
			ms, err := strconv.ParseInt(at, 10, 64)
			require.NoError(w.t, err)
			require.NoError(w.t, w.rdb.HSet(ctx, key, name, fmt.Sprint(ms-d.Milliseconds(), " ", rest)).Err())
		}
	}
}

// goes makes what is marked older until something has gone, each time after what lives has shown
// it: a gap between passes begins a grace anew.
func (w *worker) goes(what string, shows func() func() bool, gone func() bool) {
	w.t.Helper()
	for range 5 {
		w.looks()
		eventually(w.t, "what lives shows it", shows())
		w.grow(time.Hour)
		w.looks()
		if gone() {
			return
		}
	}
	require.Fail(w.t, what)
}

// looks waits for several full passes that begin after now, of each rule that has had one.
func (w *worker) looks() {
	w.t.Helper()
	var before map[string]int
	require.Eventually(w.t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(before) == 0 {
			before = maps.Clone(w.passes)
			return false
		}
		for rule, n := range before {
			if w.passes[rule] < n+3 {
				return false
			}
		}
		return true
	}, patience, 50*time.Millisecond, "passes of each rule")
}
