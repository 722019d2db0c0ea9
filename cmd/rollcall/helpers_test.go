package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestMain(m *testing.M) {
	logging.Disable()                  // as cli.Main does
	_ = flag.Set("test.parallel", "8") // tests wait for replicas, and hardly compute
	pgtest.Main(m)
}

var update = flag.Bool("update", false, "write the files of testdata")

// patience bounds what a test waits for an event; nothing ever takes so long.
const patience = waittest.Patience

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

// world is a Redis with a fleet's keys, and the tool that looks at it.
type world struct {
	t          *testing.T
	client     redis.UniversalClient
	options    *redis.Options
	cluster    *redistest.Cluster // nil: options name a single server
	keys       guard.Layout
	environ    []string
	partitions int           // 0: one
	interval   time.Duration // 0: half a second
}

func newWorld(t *testing.T, w redistest.World) *world {
	return &world{
		t: t, client: w.Client, options: w.Options, keys: guard.Layout{Prefix: w.Prefix},
		environ: []string{"REDIS_URL=redis://" + w.Options.Addr},
	}
}

// run runs the tool, and returns its status and what it said.
func (w *world) run(args ...string) (code int, stdout, stderr string) {
	return w.runPlainly(append([]string{args[0], "--prefix", w.keys.Prefix}, args[1:]...)...)
}

// runPlainly runs the tool with these arguments alone.
func (w *world) runPlainly(args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	code = rollcall().Execute(w.t.Context(), args, w.environ, &out, &complaints)
	return code, out.String(), complaints.String()
}

// redis carries out a command of words: what something else wrote or set.
func (w *world) redis(command string, words ...any) {
	w.t.Helper()
	for i, word := range strings.Fields(command) {
		words = slices.Insert(words, i, any(word))
	}
	require.NoError(w.t, w.client.Do(w.t.Context(), words...).Err(), "%v", words)
}

// answer runs the tool with --json, and decodes its answer into to.
func (w *world) answer(to any, args ...string) (code int) {
	w.t.Helper()
	code, stdout, stderr := w.run(append(args, "--json")...)
	require.NotEmpty(w.t, stdout, "status %d: %s", code, stderr)
	require.NoError(w.t, json.NewDecoder(strings.NewReader(stdout)).Decode(to), stdout)
	return code
}

// ask decodes a fresh answer of the tool.
func ask[T any](w *world, args ...string) (v T) {
	w.t.Helper()
	w.answer(&v, args...)
	return v
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	waittest.Until(t, 20*time.Millisecond, ok, what)
}

// replica is one in this process.
type replica struct {
	reg  *partition.Registry
	jan  *partition.Janitor
	stop func()
}

const (
	interval = 500 * time.Millisecond
	ttl      = 6 * interval
)

// clients are those of a replica.
func (w *world) clients() (data, control redis.UniversalClient) {
	if w.cluster != nil {
		return redis.NewClusterClient(lease.ClusterOptions(w.cluster.Options())),
			redis.NewClusterClient(lease.ClusterOptions(w.cluster.Options()))
	}
	fast := *w.options
	fast.DialTimeout, fast.ReadTimeout = interval*4/5, interval*4/5
	fast.WriteTimeout, fast.PoolTimeout = interval*4/5, interval*4/5
	return redis.NewClient(w.options), redis.NewClient(lease.Options(&fast))
}

// replica starts one that contends for the lease, with these sweeps beside the registry's.
func (w *world) replica(id string, sweeps ...janitor.Sweeper) *replica {
	t := w.t
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	data, control := w.clients()
	beat := cmp.Or(w.interval, interval)
	reg, err := partition.NewRegistry(registry.Config{
		Client: data, Control: control, Instance: id, Layout: w.keys, Logger: quiet,
		HeartbeatInterval: beat, HeartbeatTTL: 6 * beat, Drain: interval / 10,
	}, max(1, w.partitions))
	require.NoError(t, err)
	jan, err := partition.NewJanitor(janitor.Config{
		Client: data, Control: control, Logger: quiet,
		Interval: time.Second, LeaseTTL: 3 * time.Second, Sweeps: sweeps,
	}, reg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	g := pool.New().WithContext(ctx).WithCancelOnError()
	g.Go(reg.Run)
	g.Go(jan.Run)
	r := &replica{reg: reg, jan: jan, stop: sync.OnceFunc(func() {
		cancel()
		if err := g.Wait(); w.cluster == nil { // a test may have killed a node
			require.NoError(t, err)
		}
		_, _ = data.Close(), control.Close()
	})}
	t.Cleanup(r.stop)
	<-reg.Started()
	return r
}

// nobody is a socket that nobody minds.
var nobody = registry.Socket{Close: func() error { return nil }}

// holds registers a device, for as long as the test lasts.
func (w *world) holds(r *replica, imei string) *registry.Claim {
	claim := r.reg.Register(imei, nobody)
	require.NoError(w.t, claim.Wait(w.t.Context()))
	return claim
}

// writes makes what an older writer leaves: entries, and a heartbeat if it is to last.
func (w *world) writes(owner string, beat time.Duration, imeis ...string) {
	for _, imei := range imeis {
		w.redis("HSET", w.keys.Registry(), imei, owner)
	}
	if beat > 0 {
		w.redis("SET", w.keys.Heartbeat(owner), "1", "PX", beat.Milliseconds())
	} else { // its record: silent for long
		w.redis("HSET", w.keys.Beats(), owner, "1/1000/500/1/0/h")
	}
}

// shared is a world of its own on the shared server.
func shared(t *testing.T) *world {
	server := redistest.Shared(t)
	return newWorld(t, redistest.World{Client: server.Client(), Options: server.Options(), Prefix: redistest.Prefix(t)})
}

// serverOf is the world of a server of its own.
func serverOf(t *testing.T, options *redis.Options) *world {
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	return &world{t: t, client: client, options: options, environ: []string{"REDIS_URL=redis://" + options.Addr}}
}

// listened makes the witness believe that it has listened for an hour, so that no test waits for a
// grace period. It is to be called before the first replica is.
func (w *world) listened() {
	w.t.Helper()
	timing := guard.Timing{Interval: interval, TTL: ttl}
	_, err := guard.New(w.client, w.client, w.keys, timing, "nobody").Tick(w.t.Context())
	require.NoError(w.t, err)
	w.redis("HSET", w.keys.Witness(), "since", time.Now().Add(-time.Hour).UnixMilli())
}

// heartbeatAt is what a replica writes that began and beat at this time.
func heartbeatAt(at time.Time) string {
	return fmt.Sprintf("%d/%016d%010d", at.UnixMilli(), at.UnixMicro(), 7)
}
