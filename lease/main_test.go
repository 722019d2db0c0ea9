package lease

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// bench is a server in a bubble, with the test's lease.
type bench struct {
	*testing.T
	opts  *redis.Options
	admin *redis.Client // its own connection, never broken
	key   string
	ttl   time.Duration
	// patience is long enough for a lease to expire many times.
	patience time.Duration
}

// inBubble runs f against a fresh server with a virtual clock.
func inBubble(t *testing.T, f func(b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f(newBench(t, redistest.Fake(t), "janitor:leader", 15*time.Second))
	})
}

func newBench(t *testing.T, o *redis.Options, key string, ttl time.Duration) *bench {
	b := &bench{T: t, opts: o, admin: redis.NewClient(o), key: key, ttl: ttl, patience: 20 * ttl}
	if o.Dialer == nil { // outside the bubble
		b.patience = min(b.patience, 30*time.Second)
	}
	t.Cleanup(func() { require.NoError(t, b.admin.Close()) })
	// Load redsync's scripts, so that each attempt is one EVALSHA.
	l := newLock(b.admin, key+":warm-up", "test", timings(10*time.Second))
	require.NoError(t, l.acquire(t.Context(), time.Second))
	require.NoError(t, l.extend(t.Context(), time.Second))
	require.NoError(t, l.release(t.Context(), time.Second))
	return b
}

func (b *bench) value() string {
	v, err := b.admin.Get(b.Context(), b.key).Result()
	if err != redis.Nil {
		require.NoError(b, err)
	}
	return v
}

func await[T any](b *bench, c <-chan T) (v T) {
	b.Helper()
	select {
	case v = <-c:
	case <-time.After(b.patience):
		require.FailNow(b, "nothing comes")
	}
	return v
}

// candidate is an elector with a breakable line, and its history.
type candidate struct {
	*Elector
	b    *bench
	line *line
	log  *records

	mu     sync.Mutex
	events []Event
	terms  chan *Term // terms begun
	stop   context.CancelFunc
	ended  chan error // results of Run
}

func (b *bench) candidate(instance string) *candidate {
	c := &candidate{
		b: b, line: &line{}, log: &records{},
		terms: make(chan *Term, 1000),
		ended: make(chan error, 1),
	}
	o := Options(b.opts)
	within := b.ttl / 3
	for _, d := range []*time.Duration{&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout, &o.PoolTimeout} {
		*d = min(*d, within-time.Millisecond)
	}
	client := redis.NewClient(o)
	client.AddHook(c.line)
	b.Cleanup(func() { require.NoError(b, client.Close()) })
	e, err := New(Config{
		Client: client, Key: b.key, Instance: instance, TTL: b.ttl,
		Logger: slog.New(c.log),
		OnTransition: func(ev Event) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.events = append(c.events, ev)
		},
	})
	require.NoError(b, err)
	c.Elector = e
	return c
}

// leader returns a candidate that leads, and its term.
func (b *bench) leader(instance string) (*candidate, *Term) {
	b.Helper()
	c := b.candidate(instance).run(untilEnd)
	return c, await(b, c.terms)
}

// writes has the lease's key hold something.
func (b *bench) writes(value string, ttl time.Duration) {
	require.NoError(b, b.admin.Set(b.Context(), b.key, value, ttl).Err())
}

// ends stops a candidate, and waits.
func (c *candidate) ends() {
	c.b.Helper()
	c.stop()
	require.NoError(c.b, await(c.b, c.ended))
}

// rows runs f for each row in a bubble of its own.
func rows[C any](t *testing.T, all map[string]C, f func(b *bench, c C)) {
	t.Helper()
	t.Parallel()
	for name, c := range all {
		t.Run(name, func(t *testing.T) { inBubble(t, func(b *bench) { f(b, c) }) })
	}
}

// run starts Run; the end of the test stops it and waits.
func (c *candidate) run(lead func(context.Context, *Term) error) *candidate {
	ctx, cancel := context.WithCancel(c.b.Context())
	c.stop = cancel
	back := make(chan struct{})
	go func() {
		defer close(back)
		c.ended <- c.Run(ctx, func(ctx context.Context, t *Term) error {
			c.terms <- t
			return lead(ctx, t)
		})
	}()
	c.b.Cleanup(func() {
		cancel()
		<-back
	})
	return c
}

func (c *candidate) seen() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Event(nil), c.events...)
}

func (c *candidate) leads() bool {
	_, ok := c.Term()
	return ok
}

// untilEnd is work that only waits for the end of its context.
func untilEnd(ctx context.Context, _ *Term) error {
	<-ctx.Done()
	return ctx.Err()
}

type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

const errRefused = refusal("NOPERM no")

// fault is the fate of a request.
type fault int

const (
	none    fault = iota
	drop          // the request is lost, and no reply comes
	mute          // the request runs, but no reply comes
	cut           // the request runs, then the connection breaks
	late          // no reply comes, and the request runs a second later
	stuck         // nothing happens until the line is mended, whatever the context
	held          // the request runs, and the reply comes when the line is mended
	gone          // the connection breaks before the request is sent
	refused       // the server answers with an error
)

// line is a client's hook that breaks the connection to the server on demand.
type line struct {
	mu    sync.Mutex
	rule  func(redis.Cmder) fault
	sent  []string // commands, in order
	freed chan struct{}
}

// breaks applies the fault to every request until mend.
func (l *line) breaks(f fault) { l.breaksIf(func(redis.Cmder) fault { return f }) }

func (l *line) breaksIf(rule func(redis.Cmder) fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rule, l.freed = rule, make(chan struct{})
}

// breaksOnce applies the fault to the next request of a kind.
func (l *line) breaksOnce(kind string, f fault) {
	done := false
	l.breaksIf(func(cmd redis.Cmder) fault {
		if done || kindOf(cmd) != kind {
			return none
		}
		done = true
		return f
	})
}

func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rule != nil {
		close(l.freed)
	}
	l.rule = nil
}

func (l *line) count(kind string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, s := range l.sent {
		if s == kind {
			n++
		}
	}
	return n
}

func (l *line) judge(cmd redis.Cmder) (fault, chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, kindOf(cmd))
	if l.rule == nil {
		return none, nil
	}
	return l.rule(cmd), l.freed
}

func (l *line) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *line) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		f, freed := l.judge(cmd)
		if f == late {
			again := redis.NewCmd(context.Background(), cmd.Args()...)
			time.AfterFunc(time.Second, func() { _ = next(context.Background(), again) })
		}
		return f.meet(ctx, freed, func() error { return next(ctx, cmd) }, cmd)
	}
}

func (l *line) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		f, freed := l.judge(cmds[0])
		return f.meet(ctx, freed, func() error { return next(ctx, cmds) }, cmds...)
	}
}

func (f fault) meet(ctx context.Context, freed <-chan struct{}, next func() error, cmds ...redis.Cmder) error {
	var failed error = context.DeadlineExceeded
	switch f {
	case none:
		return next()
	case mute:
		_ = next()
	case stuck:
		<-freed
		return next()
	case held:
		err := next()
		<-freed
		return err
	}
	switch f {
	case cut:
		_, failed = next(), io.ErrUnexpectedEOF
	case gone:
		failed = io.ErrUnexpectedEOF
	case refused:
		failed = errRefused
	default:
		<-ctx.Done()
	}
	for _, cmd := range cmds {
		cmd.SetErr(failed)
	}
	return failed
}

// kindOf returns the purpose of a command.
func kindOf(cmd redis.Cmder) string {
	args := cmd.Args()
	switch cmd.Name() {
	case "set", "setnx":
		return "acquire"
	case "get", "getrange":
		return "look"
	case "publish":
		return "announce"
	case "evalsha", "eval":
		sha, _ := args[1].(string)
		if cmd.Name() == "eval" {
			sum := sha1.Sum([]byte(sha))
			sha = hex.EncodeToString(sum[:])
		}
		switch sha {
		case "d75bb8b5bd13532ddedd17762e772346e39b321e": // redsync's
			return "extend"
		case "e950836ed1e694540c503ef9972b8de518044d3b": // redsync's
			return "release"
		case epochScript.Hash():
			return "epoch"
		case capScript.Hash():
			return "cap"
		}
	}
	return cmd.Name()
}

type records struct {
	mu     sync.Mutex
	lines  []string
	levels map[slog.Level]int
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }
func (r *records) WithAttrs([]slog.Attr) slog.Handler       { return r }
func (r *records) WithGroup(string) slog.Handler            { return r }
func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, rec.Message)
	if r.levels == nil {
		r.levels = map[slog.Level]int{}
	}
	r.levels[rec.Level]++
	return nil
}

func (r *records) count(level slog.Level) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.levels[level]
}

func (r *records) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.lines...)
}
