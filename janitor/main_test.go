package janitor_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
	"github.com/rollcall-redis/rollcall/internal/keyless"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// firstBatch is the size of a term's first batch: half of the default.
const firstBatch = 250

func TestMain(m *testing.M) { redistest.Main(m) }

// The default settings, so that GAP is 30 s and nothing expires during a test. Whatever takes time
// (the grace period, dying) is written into Redis instead.
var (
	timing = guard.Timing{Interval: registry.DefaultHeartbeatInterval, TTL: registry.DefaultHeartbeatTTL}
	grace  = timing.Grace()
)

const (
	beatEvery = registry.DefaultHeartbeatInterval
	beatTTL   = registry.DefaultHeartbeatTTL
)

// fleet is a test's corner of a server: replicas that are only keys, and janitors that really run.
type fleet struct {
	*testing.T
	*redis.Client
	guard.Layout
	options  *redis.Options
	leaseTTL time.Duration
	bubble   bool
}

// setup returns a fleet on a server that has been observed for an hour.
func setup(t *testing.T, w redistest.World) *fleet {
	// No machine is slow enough to lose a lease of half a minute.
	f := &fleet{T: t, Client: w.Client, Layout: guard.Layout{Prefix: w.Prefix}, options: w.Options, leaseTTL: 30 * time.Second}
	f.listenedFor(time.Hour)
	return f
}

// inWorlds runs a test in parallel, with its own fleet on a real server and in a bubble.
func inWorlds(t *testing.T, test func(f *fleet)) {
	t.Helper()
	t.Parallel()
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		test(onReal(t))
	})
	t.Run("bubble", func(t *testing.T) { inBubble(t, test) })
}

func onReal(t *testing.T) *fleet {
	s := redistest.Shared(t)
	return setup(t, redistest.World{Client: s.Client(), Options: s.Options(), Prefix: redistest.Prefix(t), Real: true})
}

func (f *fleet) do(args ...any) { f.Helper(); f.must(f.Client.Do(f.Context(), args...)) }

func (f *fleet) must(cmd redis.Cmder) {
	f.Helper()
	require.NoError(f, cmd.Err())
}

// listenedFor backdates the witness.
func (f *fleet) listenedFor(d time.Duration) {
	w, err := guard.New(f.Client, f.Client, f.Layout, timing, "nobody").Tick(f.Context())
	require.NoError(f, err)
	f.do("HSET", f.Witness(), "since", w.Now.Add(-d).UnixMilli())
}

// live gives instances a heartbeat, a record and a place on the roster. Nobody renews them, and
// they last for long enough not to be overdue while a test runs.
func (f *fleet) live(ids ...string) {
	for _, id := range ids {
		f.beats(id, 10*beatTTL)
	}
}

// beats sends a first beat, which is announced.
func (f *fleet) beats(id string, ttl time.Duration) {
	f.beatsOn(id, ttl)
	f.announce(id)
}

func (f *fleet) beatsOn(id string, ttl time.Duration) {
	f.must(f.Set(f.Context(), f.Heartbeat(id), "0/0", ttl))
	f.do("SADD", f.Roster(), id)
	f.record(id, doubt.Holds, 0, ttl)
}

// announce publishes an id, as instances do that come or leave.
func (f *fleet) announce(id string) {
	f.do("PUBLISH", keyless.Channel(f.Client, f.News()), id)
}

// dies makes an instance as dead as one that has been silent for so long that nothing can be in
// doubt.
func (f *fleet) dies(id string) {
	f.do("DEL", f.Heartbeat(id))
	f.record(id, doubt.Holds, beatTTL+grace+10*time.Second, beatTTL)
	f.announce(id)
}

// record stores a record that is so old.
func (f *fleet) record(id string, state doubt.State, ago, ttl time.Duration) {
	now, err := f.Time(f.Context()).Result()
	require.NoError(f, err)
	due := doubt.Own{Interval: timing.Interval.Milliseconds()}.Due()
	r := doubt.Record{
		Last: now.Add(-ago).UnixMilli(), TTL: ttl.Milliseconds(), State: state, Born: 1,
		Due: due + (ttl - beatTTL).Milliseconds(),
	}
	f.do("HSET", f.Beats(), id, r.String())
}

// entries adds entries of an owner, which is dead beyond doubt unless it has a record.
func (f *fleet) entries(owner string, n int) []string {
	if !f.HExists(f.Context(), f.Beats(), owner).Val() {
		f.record(owner, doubt.Holds, beatTTL+grace+10*time.Second, beatTTL)
	}
	return f.plain(owner, n)
}

// plain adds entries of an owner that writes no records.
func (f *fleet) plain(owner string, n int) []string {
	pairs, imeis := make([]string, 0, 2*n), make([]string, 0, n)
	for i := range n {
		imei := fmt.Sprintf("%s-%06d", owner, i)
		imeis = append(imeis, imei)
		pairs = append(pairs, imei, owner)
	}
	f.must(f.HSet(f.Context(), f.Registry(), pairs))
	return imeis
}

// indexed adds entries, with the owner's index and place on the roster.
func (f *fleet) indexed(owner string, n int) []string {
	imeis := f.entries(owner, n)
	members := make([]any, n)
	for i, imei := range imeis {
		members[i] = imei
	}
	f.must(f.SAdd(f.Context(), f.Devices(owner), members...))
	f.do("SADD", f.Roster(), owner)
	f.announce(owner)
	return imeis
}

func (f *fleet) left(owner string) int {
	all, err := f.HGetAll(f.Context(), f.Registry()).Result()
	require.NoError(f, err)
	n := 0
	for _, o := range all {
		if o == owner {
			n++
		}
	}
	return n
}

// has checks how many entries some owners have together.
func (f *fleet) has(n int, owners ...string) {
	f.Helper()
	left := 0
	for _, owner := range owners {
		left += f.left(owner)
	}
	require.Equal(f, n, left, owners)
}

// recorded returns the log's sum of evictions.
func (f *fleet) recorded() int {
	records, err := f.XRange(f.Context(), f.Log(), "-", "+").Result()
	require.NoError(f, err)
	sum := 0
	for _, r := range records {
		if text, ok := r.Values["count"]; ok {
			n, err := strconv.Atoi(fmt.Sprint(text))
			require.NoError(f, err)
			sum += n
		}
	}
	return sum
}

func (f *fleet) total() int {
	n, err := f.HGet(f.Context(), f.Witness(), "evicted_total").Int()
	if err == redis.Nil {
		return 0
	}
	require.NoError(f, err)
	return n
}

// replica is a janitor of the fleet.
type replica struct {
	*Janitor
	f       *fleet
	faults  *faults
	scraped *prometheus.Registry
	client  *redis.Client
	lines   *process.Buffer // its log
}

// replica returns a janitor with its own heartbeat, whose periodic full scan runs only once, at the
// start of its term. change, if not nil, adapts its configuration.
func (f *fleet) replica(id string, change func(*Config)) *replica {
	if f.bubble {
		f.Cleanup(f.beat(id))
	} else {
		f.live(id)
	}
	return f.silentReplica(id, change)
}

// leader returns a replica r1 that leads, and whose sweeps have had a pass; starts one that runs.
func (f *fleet) leader(change ...func(*Config)) *replica {
	r := f.replica("r1", append(change, nil)[0])
	r.leads()
	return r
}

func (f *fleet) starts(change ...func(*Config)) *replica {
	r := f.replica("r1", append(change, nil)[0])
	r.start()
	return r
}

func minutely(c *Config) { c.Interval = time.Minute }

// silentReplica is replica without the heartbeat.
func (f *fleet) silentReplica(id string, change func(*Config)) *replica {
	client, control := redis.NewClient(f.options), redis.NewClient(lease.Options(f.options))
	f.Cleanup(func() {
		require.NoError(f, client.Close())
		require.NoError(f, control.Close())
	})
	h := &faults{}
	client.AddHook(redistest.Intercept(h.meets))
	scraped, lines := prometheus.NewRegistry(), &process.Buffer{}
	reg, err := registry.New(registry.Config{
		Client: client, Control: control, Instance: id, Layout: f.Layout, Registerer: scraped,
	})
	require.NoError(f, err)
	c := Config{
		Client: client, Control: control, Registry: reg, Interval: time.Hour, LeaseTTL: f.leaseTTL,
		RedisShare: 1, Logger: slog.New(slog.NewTextHandler(lines, nil)), Registerer: scraped,
	}
	if change != nil {
		change(&c)
	}
	j, err := New(c)
	require.NoError(f, err)
	return &replica{Janitor: j, f: f, faults: h, scraped: scraped, client: client, lines: lines}
}

// start runs the janitor until the test ends or stop is called.
func (r *replica) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(r.f, <-ended)
	})
	r.f.Cleanup(stop)
	return stop
}

// leads starts the janitor and waits until each of its sweeps has had a pass.
func (r *replica) leads() (stop func()) {
	stop = r.start()
	r.f.eventually(func() bool { return len(r.Status().Sweeps) == r.SweepCount() })
	return stop
}

func (r *replica) report(sweep string) Report {
	for _, rep := range r.Status().Sweeps {
		if rep.Sweep == sweep {
			return rep
		}
	}
	return Report{}
}

// sweep requests a pass of all sweeps and returns the reports by name.
func (r *replica) sweep(req Request) map[string]Report {
	reports, err := r.Janitor.Sweep(r.f.Context(), req)
	require.NoError(r.f, err)
	byName := map[string]Report{}
	for _, rep := range reports {
		byName[rep.Sweep] = rep
	}
	return byName
}

// value scrapes a series. labels are names and values, in turn.
func (r *replica) value(name string, labels ...string) float64 {
	families, err := r.scraped.Gather()
	require.NoError(r.f, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			all := family.GetName() == name
			for i := 0; i < len(labels); i += 2 {
				all = all && has[labels[i]] == labels[i+1]
			}
			if all {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

// said counts a text in the replica's log.
func (r *replica) said(text string) int { return strings.Count(r.lines.String(), text) }

// counts checks a series.
func (r *replica) counts(want float64, name string, labels ...string) {
	r.f.Helper()
	require.InDelta(r.f, want, r.value(name, labels...), 0, name)
}

// counted returns the process' own count of an owner's evictions.
func (r *replica) counted(owner string) int {
	return int(r.value("registry_janitor_evicted_total", "instance_id", owner))
}

// eventually waits for real processes and servers.
func (f *fleet) eventually(cond func() bool) {
	f.Helper()
	waittest.Until(f.T, 5*time.Millisecond, cond)
}

func named(cmds []redis.Cmder, command string) bool {
	return slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Name() == command })
}

// before calls f before each command of a name, or pipeline with one. An error is its answer.
func before(command string, f func() error) redistest.Intercept {
	return func(_ context.Context, cmds []redis.Cmder, send func() error) error {
		if named(cmds, command) {
			if err := f(); err != nil {
				return redistest.Fail(cmds, err)
			}
		}
		return send()
	}
}

// counted counts them.
func counted(command string, n *atomic.Int64) redistest.Intercept {
	return before(command, func() error { n.Add(1); return nil })
}

// slowed delays them.
func slowed(command string, d time.Duration) redistest.Intercept {
	return func(ctx context.Context, cmds []redis.Cmder, send func() error) error {
		if named(cmds, command) {
			wait.For(ctx, d)
		}
		return send()
	}
}

// broken is a line that, while it is by one, fails each command of a name and each pipeline with
// one; "": all.
type broken struct {
	mu      sync.Mutex
	command string
	err     error
}

// on adds the hook to both clients.
func (b *broken) on(c *Config) {
	c.Client.(*redis.Client).AddHook(redistest.Intercept(b.meets))
	c.Control.(*redis.Client).AddHook(redistest.Intercept(b.meets))
}

func (b *broken) by(command string, err error) (mend func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.command, b.err = command, err
	return func() { b.by("", nil) }
}

func (b *broken) meets(_ context.Context, cmds []redis.Cmder, send func() error) error {
	b.mu.Lock()
	command, err := b.command, b.err
	b.mu.Unlock()
	if err != nil && (command == "" || named(cmds, command)) {
		return redistest.Fail(cmds, err)
	}
	return send()
}

type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

// faults is a hook on a client that only runs guarded batches.
type faults struct {
	mu     sync.Mutex
	before func(args []any) error // an error: the request is lost
	after  func(args []any) error // an error: the reply is lost
}

func (h *faults) set(before, after func(args []any) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.before, h.after = before, after
}

// once limits a fault to the first batch.
func once(f func(args []any) error) func(args []any) error {
	var first sync.Once
	return func(args []any) (err error) {
		first.Do(func() { err = f(args) })
		return err
	}
}

func (h *faults) meets(_ context.Context, cmds []redis.Cmder, send func() error) error {
	h.mu.Lock()
	before, after := h.before, h.after
	h.mu.Unlock()
	cmd, args := cmds[0], cmds[0].Args()
	script := strings.HasPrefix(cmd.Name(), "eval") && strings.HasSuffix(fmt.Sprint(args[3]), "janitor:log")
	if before != nil && script && cmd.Name() == "evalsha" { // always tried first
		if err := before(args); err != nil {
			return redistest.Fail(cmds, err)
		}
	}
	if err := send(); err != nil || after == nil || !script {
		return err // NOSCRIPT among others
	}
	if err := after(args); err != nil {
		return redistest.Fail(cmds, err)
	}
	return nil
}

type fakeSweep struct {
	name  string
	every time.Duration
	pass  func(ctx context.Context, p *Pass) error
}

func (s fakeSweep) Name() string                           { return s.name }
func (s fakeSweep) Interval() time.Duration                { return s.every }
func (s fakeSweep) Run(ctx context.Context, p *Pass) error { return s.pass(ctx, p) }

// rows runs a test for each row, in a bubble or in worlds.
func rows[C any](t *testing.T, in func(*testing.T, func(*fleet)), all map[string]C, test func(f *fleet, c C)) {
	t.Helper()
	t.Parallel()
	for name, c := range all {
		t.Run(name, func(t *testing.T) { in(t, func(f *fleet) { test(f, c) }) })
	}
}

type fakeScan struct{ fakeSweep }

func (fakeScan) FullScans() {}
