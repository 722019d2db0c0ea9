package orphan

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan/rules"
	"github.com/rollcall-redis/rollcall/registry"
)

// rig is a janitor that leads, with the sweeps of some rules, and a Redis that was listened to for
// hours.
type rig struct {
	t      *testing.T
	rdb    redis.UniversalClient // of the test, not of the janitor
	jan    *janitor.Janitor
	set    *Set
	sweeps []janitor.Sweeper
	layout guard.Layout

	mu      sync.Mutex
	results map[string]Result // the last full one of each rule
}

func newRig(t *testing.T, options *redis.Options, prefix string, source Source, rules ...rules.Rule) *rig {
	t.Helper()
	return newRigOn(t, redis.NewClient(options), redis.NewClient(options), redis.NewClient(lease.Options(options)),
		prefix, source, rules...)
}

// newRigOn is newRig with clients of the test, of the sweeps, and of the lease. It closes them.
// Names of keys begin with the prefix: other tests are on the same server.
func newRigOn(t *testing.T, rdb, data, control redis.UniversalClient, prefix string, source Source, rules ...rules.Rule) *rig {
	t.Helper()
	return newRigEvery(t, 30*time.Minute, rdb, data, control, prefix, source, rules...)
}

// newRigEvery is newRigOn with another interval.
func newRigEvery(t *testing.T, interval time.Duration, rdb, data, control redis.UniversalClient, prefix string,
	source Source, rules ...rules.Rule,
) *rig {
	t.Helper()
	r := &rig{t: t, rdb: rdb, layout: guard.Layout{Prefix: prefix}, results: map[string]Result{}}
	for _, c := range []redis.UniversalClient{rdb, data, control} {
		t.Cleanup(func() { _ = c.Close() })
	}
	logger := slog.New(slog.DiscardHandler)
	reg, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: "worker-1", Layout: r.layout, Logger: logger,
	})
	require.NoError(t, err)
	r.set, err = New(Config{
		Rules: rules, Client: data, Source: source, Layout: r.layout, Interval: interval, Logger: logger,
		Passed: func(result Result) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.results[result.Rule] = result
		},
	})
	require.NoError(t, err)
	r.sweeps = r.set.Sweeps()
	r.jan, err = janitor.New(janitor.Config{
		Client: data, Control: control, Registry: reg, Sweeps: r.sweeps, Logger: logger, RedisShare: 1,
	})
	require.NoError(t, err)

	ctx := context.Background()
	timing := guard.Timing{Interval: 30 * time.Second, TTL: 90 * time.Second}
	_, err = guard.New(r.rdb, r.rdb, r.layout, timing, "nobody").Tick(ctx)
	require.NoError(t, err)
	r.listened(10 * time.Hour)
	ctx, stop := context.WithCancel(ctx)
	replica := pool.New().WithContext(ctx)
	replica.Go(reg.Run)
	replica.Go(r.jan.Run)
	t.Cleanup(func() {
		stop()
		require.NoError(t, replica.Wait())
	})
	r.sweep("") // the first pass of the term is over before there is anything
	return r
}

// listened makes the witness believe that it has listened for so long.
func (r *rig) listened(d time.Duration) {
	r.t.Helper()
	at := time.Now().Add(-d).UnixMilli()
	require.NoError(r.t, r.rdb.HSet(r.t.Context(), r.layout.Witness(), "since", at).Err())
}

// sweep asks for a full pass of all rules, and returns what the one of this name found.
func (r *rig) sweep(rule string) Result {
	r.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		_, err := r.jan.Sweep(r.t.Context(), janitor.Request{})
		if not := new(janitor.NotLeaderError); errors.As(err, &not) {
			continue
		}
		require.NoError(r.t, err)
		break
	}
	return r.result(rule)
}

// result is what the last pass of a rule found.
func (r *rig) result(rule string) Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[rule]
}

// pass lets time go by for what is noted of a rule.
func (r *rig) pass(rule string, d time.Duration) {
	r.t.Helper()
	ctx, key := r.t.Context(), marksKey(r.layout, rule)
	marks, err := r.rdb.HGetAll(ctx, key).Result()
	require.NoError(r.t, err)
	for name, text := range marks {
		m, ok := proof.ParseMark(text)
		require.True(r.t, ok)
		require.NoError(r.t, r.rdb.HSet(ctx, key, name,
			fmt.Sprintf("%d %d %s", m.At.Add(-d).UnixMilli(), m.Chain, m.Print)).Err())
	}
}

// rounds sweeps, n times with so much time in between for all rules.
func (r *rig) rounds(n int, d time.Duration) {
	r.t.Helper()
	for range n {
		r.sweep("")
		for _, rule := range r.set.rules {
			r.pass(rule.Name, d)
		}
	}
	r.sweep("")
}

func (r *rig) do(args ...any) {
	r.t.Helper()
	err := r.rdb.Do(r.t.Context(), args...).Err()
	if !errors.Is(err, redis.Nil) {
		require.NoError(r.t, err)
	}
}

func (r *rig) exists(keys ...string) bool {
	r.t.Helper()
	n, err := r.rdb.Exists(r.t.Context(), keys...).Result()
	require.NoError(r.t, err)
	return n == int64(len(keys))
}

// documents is a Source in memory.
type documents struct {
	mu   sync.Mutex
	all  map[string]Document // by id
	err  error
	asks int
}

func (d *documents) Documents(_ context.Context, q Query) (map[string]Document, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asks++
	found := map[string]Document{}
	for _, id := range q.IDs {
		if doc, ok := d.all[id]; ok {
			found[id] = maps.Clone(doc)
		}
	}
	return found, d.err
}

func (d *documents) Empty(context.Context, string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.all) == 0, d.err
}

func ms(at time.Time) string { return strconv.FormatInt(at.UnixMilli(), 10) }
