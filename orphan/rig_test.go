package orphan

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan/rules"
	"github.com/rollcall-redis/rollcall/registry"
)

// rig is a janitor that leads, with the sweeps of some rules, and a Redis that was listened to for
// hours. In rules, commands and names "P:" is the test's own prefix.
type rig struct {
	*testing.T
	world  redistest.World
	p      string                // the prefix
	rdb    redis.UniversalClient // of the test, not of the janitor
	data   redis.UniversalClient // of the janitor's sweeps
	jan    *janitor.Janitor
	set    *Set
	sweeps []janitor.Sweeper
	layout guard.Layout
	source *documents

	mu      sync.Mutex
	results map[string]Result // the last full one of each rule
}

// config has what a rig may have besides rules.
type config struct {
	plain              bool // "P:" is nothing
	rdb, data, control redis.UniversalClient
}

// both runs a case on a real Redis and on miniredis, onReal on the former alone.
func both(t *testing.T, yaml string, f func(r *rig)) {
	t.Helper()
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		f(newRig(t, w, yaml, config{}))
	})
}

func onReal(t *testing.T, yaml string, f func(r *rig)) {
	t.Helper()
	redistest.OnReal(t, func(t *testing.T, w redistest.World) { f(newRig(t, w, yaml, config{})) })
}

// onCluster is for names without "P:", as the Cluster is the test's own.
func onCluster(t *testing.T, c *redistest.Cluster, yaml string) *rig {
	t.Helper()
	client := func() redis.UniversalClient { return redis.NewClusterClient(lease.ClusterOptions(c.Options())) }
	r := newRig(t, redistest.World{Prefix: "{cleanup}:"}, yaml, config{plain: true, rdb: c.Client(), data: client(), control: client()})
	r.set.evidence = time.Minute // this machine may be slow
	return r
}

// alone is on a server of the test's own.
func alone(t *testing.T, yaml string) *rig {
	t.Helper()
	return newRig(t, redistest.World{Prefix: "{cleanup}:", Options: redistest.Start(t).Options()}, yaml, config{plain: true})
}

// parse reads rules, without "rules:", and has them delete.
func parse(t *testing.T, yaml, p string) []rules.Rule {
	t.Helper()
	all, err := rules.Parse([]byte("rules:\n" + strings.ReplaceAll(yaml, "P:", p)))
	require.NoError(t, err)
	for i := range all {
		all[i].Delete = true
	}
	return all
}

func newRig(t *testing.T, w redistest.World, yaml string, c config) *rig {
	t.Helper()
	r := &rig{
		T: t, world: w, p: w.Prefix, rdb: c.rdb, data: c.data, layout: guard.Layout{Prefix: w.Prefix}, results: map[string]Result{},
		source: &documents{all: map[string]Document{}},
	}
	if c.plain {
		r.p = ""
	}
	if c.rdb == nil {
		r.rdb, r.data, c.control = redis.NewClient(w.Options), redis.NewClient(w.Options), redis.NewClient(lease.Options(w.Options))
	}
	for _, c := range []redis.UniversalClient{r.rdb, r.data, c.control} {
		t.Cleanup(func() { _ = c.Close() })
	}
	logger := slog.New(slog.DiscardHandler)
	reg, err := registry.New(registry.Config{
		Client: r.data, Control: c.control, Instance: "worker-1", Layout: r.layout, Logger: logger,
	})
	require.NoError(t, err)
	r.set, err = New(Config{
		Rules: parse(t, yaml, r.p), Client: r.data, Source: r.source, Layout: r.layout, Interval: 30 * time.Minute, Logger: logger,
		Passed: func(result Result) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.results[result.Rule] = result
		},
	})
	require.NoError(t, err)
	r.sweeps = r.set.Sweeps()
	r.jan, err = janitor.New(janitor.Config{
		Client: r.data, Control: c.control, Registry: reg, Sweeps: r.sweeps, Logger: logger, RedisShare: 1,
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
	r.Helper()
	r.do("HSET", r.layout.Witness(), "since", time.Now().Add(-d).UnixMilli())
}

// sweep asks for a full pass of all rules, and returns what the one of this name found.
func (r *rig) sweep(rule string) Result {
	r.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		_, err := r.jan.Sweep(r.Context(), janitor.Request{})
		if not := new(janitor.NotLeaderError); errors.As(err, &not) {
			continue
		}
		require.NoError(r, err)
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

// told is a result in a line, such as "held mass_failure: 1 alive, 2 removed".
func told(result Result) string {
	found := maps.Clone(result.Kept)
	if result.Removed > 0 {
		found["removed"] = result.Removed
	}
	var parts []string
	for _, what := range sorted(found) {
		parts = append(parts, fmt.Sprint(found[what], " ", what))
	}
	line := strings.Join(parts, ", ")
	if result.Reason != "" {
		line = strings.TrimSpace("held " + result.Reason + ": " + line)
	}
	return line
}

// swept sweeps, and compares what a rule found.
func (r *rig) swept(rule, want string) {
	r.Helper()
	result := r.sweep(rule)
	require.Equal(r, want, told(result), "%+v", result)
}

// found compares what another rule found in that sweep.
func (r *rig) found(rule, want string) {
	r.Helper()
	require.Equal(r, want, told(r.result(rule)), "%+v", r.result(rule))
}

// pass lets time go by for what is noted of a rule; "": of all.
func (r *rig) pass(rule string, d time.Duration) {
	r.Helper()
	if rule == "" {
		for _, each := range r.set.rules {
			r.pass(each.Name, d)
		}
		return
	}
	key := marksKey(r.layout, rule)
	for name, text := range r.rdb.HGetAll(r.Context(), key).Val() {
		m, ok := proof.ParseMark(text)
		require.True(r, ok)
		r.do("HSET", key, name, fmt.Sprintf("%d %d %s", m.At.Add(-d).UnixMilli(), m.Chain, m.Print))
	}
}

// ripen has what is condemned wait for so long.
func (r *rig) ripen(rule string, d time.Duration) {
	r.Helper()
	r.sweep(rule)
	r.pass(rule, d)
}

// rounds sweeps, n times with so much time in between for all rules.
func (r *rig) rounds(n int, d time.Duration) {
	r.Helper()
	for range n {
		r.ripen("", d)
	}
	r.sweep("")
}

func (r *rig) do(args ...any) {
	r.Helper()
	err := r.rdb.Do(r.Context(), args...).Err()
	if !errors.Is(err, redis.Nil) {
		require.NoError(r, err)
	}
}

// run runs commands, one a line, as redis-cli takes them: bytes as \xff, and @ms-2h, @s-2h and
// @iso-2h are times.
func (r *rig) run(lines string) {
	r.Helper()
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line != "" {
			r.do(r.words(line)...)
		}
	}
}

func (r *rig) words(line string) (args []any) {
	for _, word := range strings.Fields(strings.ReplaceAll(line, "P:", r.p)) {
		unit, ago, is := strings.Cut(strings.TrimPrefix(word, "@"), "-")
		if !is || !strings.HasPrefix(word, "@") {
			args = append(args, rules.Unspell(word))
			continue
		}
		d, err := time.ParseDuration(ago)
		require.NoError(r, err)
		at := time.Now().Add(-d)
		args = append(args, map[string]string{
			"ms": ms(at), "s": strconv.FormatInt(at.Unix(), 10), "iso": at.UTC().Format(time.RFC3339Nano),
		}[unit])
	}
	return args
}

// there and gone are about keys, or a key and its member as "key/member".
func (r *rig) there(names string) { r.Helper(); r.are(true, names) }
func (r *rig) gone(names string)  { r.Helper(); r.are(false, names) }

func (r *rig) are(there bool, names string) {
	r.Helper()
	for _, word := range r.words(names) {
		require.Equal(r, there, r.exists(word.(string)), "%q", word)
	}
}

func (r *rig) exists(name string) bool {
	r.Helper()
	ctx := r.Context()
	key, member, is := strings.Cut(name, "/")
	if !is {
		return r.rdb.Exists(ctx, key).Val() == 1
	}
	switch r.rdb.Type(ctx, key).Val() {
	case "zset":
		return r.rdb.ZScore(ctx, key, member).Err() == nil
	case "hash":
		return r.rdb.HExists(ctx, key, member).Val()
	}
	return r.rdb.SIsMember(ctx, key, member).Val()
}

// become gives the first rule another meaning.
func (r *rig) become(rule rules.Rule) {
	r.Helper()
	*r.set.rules[0] = *compile(rule.WithDefaults())
}

// goes is the step in which a key is compared and goes.
var goes = "evalsha " + digest(awayScript)

// hook is about commands of the janitor's client: the first that matches after so many others, or
// as many as times.
type hook struct {
	command, with  string // in lower case; in one of its arguments
	after, times   int
	before, behind func(args []any)
	refuse, lose   bool // it is not sent; its answer is lost

	mu   sync.Mutex
	hits int
}

// on adds a hook for "command with".
func (r *rig) on(what string, h *hook) *hook {
	h.command, h.with, _ = strings.Cut(strings.ReplaceAll(what, "P:", r.p), " ")
	if h.times == 0 {
		h.times = 1
	}
	r.data.AddHook(redistest.Intercept(h.around))
	return h
}

// before runs commands before the first that matches.
func (r *rig) before(what, lines string) *hook {
	return r.on(what, &hook{before: func([]any) { r.run(lines) }})
}

var errTest = errors.New("refused by a test")

func (h *hook) meets(cmd redis.Cmder) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.times == 0 || cmd.Name() != h.command || !strings.Contains(fmt.Sprint(cmd.Args()...), h.with) {
		return false
	}
	if h.after--; h.after >= 0 {
		return false
	}
	h.times--
	h.hits++
	return true
}

func (h *hook) around(_ context.Context, cmds []redis.Cmder, send func() error) (err error) {
	var met []redis.Cmder
	for _, cmd := range cmds {
		if h.meets(cmd) {
			met = append(met, cmd)
		}
	}
	for _, cmd := range met {
		if h.before != nil {
			h.before(cmd.Args())
		}
	}
	if len(met) > 0 && h.refuse {
		err = errTest
	} else if err = send(); len(met) > 0 && h.lose {
		err = io.ErrUnexpectedEOF
	}
	for _, cmd := range met {
		if h.refuse || h.lose {
			cmd.SetErr(err)
		}
		if h.behind != nil {
			h.behind(cmd.Args())
		}
	}
	return err
}

// documents is a Source in memory.
type documents struct {
	mu  sync.Mutex
	all map[string]Document // by id
	err error
}

func (d *documents) Documents(_ context.Context, q Query) (map[string]Document, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
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

func TestMain(m *testing.M) { redistest.Main(m) }
