package janitor_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/episodes"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor/internal/pacing"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// settings of one of the two fleets.
type settings struct{ interval, ttl time.Duration }

var (
	quick = settings{5 * time.Second, 15 * time.Second}   // GAP 5 s, GRACE 17 s
	slow  = settings{60 * time.Second, 180 * time.Second} // GAP 60 s, GRACE 182 s
)

func (s settings) grace() time.Duration { return s.ttl + 2*time.Second }

// instance is a replica of the model, with its own devices that never move.
type instance struct {
	id    string
	imeis []string
	settings
	old   bool // an older writer: no roster, index or janitor
	index bool
	poor  bool // its user may not INFO
	told  bool // the witness knows its settings

	alive   bool // the process runs
	cut     bool // alive, but its beats do not land
	byHand  bool // somebody deleted its heartbeat: its entries may be swept until it has beaten again
	beat    time.Time
	since   time.Time // has beaten without a break since then
	next    time.Time // next beat
	expires time.Time // end of its heartbeat, by the server's clock; zero: none
	fell    time.Time // silent since then without a goodbye; zero: not silent
	written bool      // its beat's data is complete, except perhaps entries
	listed  bool      // on the roster, unless that was lost
	scanned bool      // a full scan of the current leader has found it silent
	janitor *Janitor
	tick    time.Time // next tick
}

// leader is an instance in its own term.
type leader struct {
	*instance
	t     *Term
	term  *modelTerm
	end   context.CancelCauseFunc
	began time.Time
	seen  map[*instance]bool // met alive in this term
	mute  map[*instance]bool // silent when the term began, with entries and a place on the roster
	full  bool               // this term has completed a full scan
}

// modelTerm is a lease.Term whose holder always trusts it: only the server fences.
type modelTerm struct {
	token string
	epoch uint64
}

func (t *modelTerm) Token() string            { return t.token }
func (t *modelTerm) Epoch() uint64            { return t.epoch }
func (t *modelTerm) Valid() bool              { return true }
func (t *modelTerm) Remaining() time.Duration { return time.Minute }
func (t *modelTerm) Redraw(_ context.Context, above uint64) (uint64, error) {
	t.epoch = above + 1
	return t.epoch, nil
}

// model is the fleet, the server's facts, and the oracle's knowledge.
type model struct {
	t    *testing.T
	ctx  context.Context
	seed uint64
	rng  *rand.Rand
	guard.Layout
	db, rich, poor *redis.Client
	offset         time.Duration
	run            int // life of the server
	commands       int
	evictedKeys    int
	down           bool
	instances      []*instance
	present        map[string]*instance // entries that exist
	leader, stale  *leader
	epoch          uint64
	lookDue        time.Time // soon after a change the leader reads the roster
	saved          *snapshot
	trace          []string
	gaveUp         bool
	episodes.Tally
}

func newModel(t *testing.T, o *redis.Options, seed uint64) *model {
	m := &model{
		t: t, ctx: t.Context(), seed: seed, rng: rand.New(rand.NewPCG(seed, 1)),
		Layout:  guard.Layout{Prefix: redistest.Prefix(t)},
		present: map[string]*instance{}, epoch: 1, run: 1,
	}
	own := *o
	own.ReadTimeout, own.WriteTimeout = time.Minute, time.Minute
	m.db = redis.NewClient(&own)
	text, err := os.ReadFile("../guard/server.lua")
	require.NoError(t, err)
	clock := "local function server_us() return tonumber(string.match(KEYS[#KEYS], '^%d+')) end\n"
	m.rich = m.client(o, string(text), clock+
		"local function server()\nlocal a, b, c, d, e = string.match(KEYS[#KEYS], '^%d+ (%w+) (%w+) (%d+) (%d+) (%d+)$')\nreturn a, b, c, d, e, ''\nend\n")
	m.poor = m.client(o, string(text), clock+"local function server() return '', '', '', '', '', '' end\n")

	fleet, mixed, poor := quick, m.chance(2, 10), m.chance(2, 10)
	if m.chance(1, 10) {
		fleet = slow
	}
	index := m.chance(1, 2)
	for i := range 6 {
		n := &instance{id: string(rune('a' + i)), settings: fleet, index: index, old: i >= 4, poor: poor && i == 1}
		if mixed && i == 2 {
			n.settings = slow
		}
		for j := range 3 {
			n.imeis = append(n.imeis, fmt.Sprintf("%s%d", n.id, j))
		}
		if n.old {
			n.settings = quick
		}
		m.instances = append(m.instances, n)
		m.start(n)
	}
	m.elect(m.instances[0])
	return m
}

func (m *model) close() {
	keys, err := m.db.Keys(context.Background(), m.Prefix+"*").Result()
	require.NoError(m.t, err)
	if len(keys) > 0 {
		require.NoError(m.t, m.db.Del(context.Background(), keys...).Err())
	}
	for _, l := range []*leader{m.leader, m.stale} {
		if l != nil {
			l.end(nil)
		}
	}
	for _, c := range []*redis.Client{m.db, m.rich, m.poor} {
		require.NoError(m.t, c.Close())
	}
}

func (m *model) chance(n, of int) bool { return m.rng.IntN(of) < n }

// upTo returns a random time, more often short than long.
func (m *model) upTo(d time.Duration) time.Duration {
	x := m.rng.Float64()
	return time.Duration(x * x * float64(d))
}

func (m *model) any() *instance { return m.instances[m.rng.IntN(len(m.instances))] }

// say records an event, for failures.
func (m *model) say(format string, args ...any) {
	m.trace = append(m.trace, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// found fails the test: an entry of the living is gone.
func (m *model) found(format string, args ...any) {
	m.t.Helper()
	m.say(format, args...)
	w := m.db.HGetAll(m.ctx, m.Witness()).Val()
	episodes.Found(m.t, m.seed, m.Steps, "witness %v\n%s", w,
		strings.Join(m.trace[max(0, len(m.trace)-60):], "\n"))
}

func (m *model) do(f func(p redis.Pipeliner)) {
	_, err := m.db.TxPipelined(m.ctx, func(p redis.Pipeliner) error { f(p); return nil })
	require.NoError(m.t, err)
}

func (m *model) server() time.Time { return time.Now().Add(m.offset) }

// facts are the server's values in the model: clock, run id, counters.
func (m *model) facts() string {
	m.commands++
	return fmt.Sprintf("%d run%d master%d %d %d %d",
		m.server().UnixMicro(), m.run, m.run, 7+m.commands/100, m.commands, m.evictedKeys)
}

// client returns a client whose scripts see the model's server instead of the real one.
func (m *model) client(o *redis.Options, original, instead string) *redis.Client {
	c := redis.NewClient(lease.Options(o))
	c.AddHook(&rewrite{original: original, instead: instead, shas: map[string]string{}, facts: m.facts})
	return c
}

// rewrite is a hook that replaces server.lua in scripts, and passes the server's facts as the last
// key.
type rewrite struct {
	original, instead string
	shas              map[string]string
	facts             func() string
}

func (h *rewrite) DialHook(next redis.DialHook) redis.DialHook { return next }
func (h *rewrite) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *rewrite) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	sum := func(text string) string { s := sha1.Sum([]byte(text)); return hex.EncodeToString(s[:]) }
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := slices.Clone(cmd.Args())
		text, _ := args[min(1, len(args)-1)].(string)
		switch changed, known := h.shas[text]; {
		case cmd.Name() == "evalsha" && known:
			args[1] = changed
		case cmd.Name() == "eval" && strings.HasPrefix(text, h.original):
			changed = h.instead + strings.TrimPrefix(text, h.original)
			h.shas[sum(text)] = sum(changed)
			args[1] = changed
		default:
			return next(ctx, cmd)
		}
		keys := args[2].(int)
		args[2] = keys + 1
		args = slices.Insert(args, 3+keys, any(h.facts()))
		sent := redis.NewCmd(ctx, args...)
		err := next(ctx, sent)
		val, _ := sent.Result()
		cmd.(*redis.Cmd).SetVal(val)
		cmd.SetErr(err)
		return err
	}
}

func (m *model) start(n *instance) {
	n.alive, n.cut, n.next, n.byHand, n.told, n.written = true, false, time.Now(), false, n.old, false
	n.since = time.Time{}
	if !n.old {
		c := m.rich
		if n.poor {
			c = m.poor
		}
		reg, err := registry.New(registry.Config{
			Client: c, Control: c, Instance: n.id, Layout: m.Layout, HeartbeatInterval: n.interval, HeartbeatTTL: n.ttl,
		})
		require.NoError(m.t, err)
		n.janitor, err = New(Config{
			Client: c, Control: c, Registry: reg, RedisShare: 1, ScanCount: 1 + m.rng.IntN(20), DeleteBatch: 2,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		require.NoError(m.t, err)
		n.janitor.PaceIs(pacing.New(pacing.Config{Share: 1, Beat: n.interval})) // no small calls
		n.tick = time.Now().Add(m.upTo(time.Second))
	}
	m.say("%s starts: interval %s, index %v, old %v, poor %v", n.id, n.interval, n.index, n.old, n.poor)
	m.beatOf(n)
}

// pass lets time pass, with everything that happens by itself meanwhile.
func (m *model) pass(d time.Duration) {
	for until := time.Now().Add(d); ; {
		at, what := until, func() {}
		event := func(when time.Time, f func()) {
			if !when.IsZero() && when.Before(at) {
				at, what = when, f
			}
		}
		for _, n := range m.instances {
			if n.alive {
				event(n.next, func() { m.beatOf(n) })
			}
			if !n.expires.IsZero() && !m.down {
				event(n.expires.Add(-m.offset), func() { m.expire(n) })
			}
			if n.alive && !n.old && !m.down {
				event(n.tick, func() { m.tickOf(n) })
			}
		}
		if m.leader != nil && !m.down && !m.leader.cut {
			event(m.lookDue, m.look)
		}
		time.Sleep(time.Until(at))
		what()
		if !time.Now().Before(until) || m.gaveUp {
			return
		}
	}
}

func (m *model) expire(n *instance) {
	m.say("%s's heartbeat expires", n.id)
	m.silence(n)
	n.since = time.Time{}
}

// tickOf sends an instance's tick, unless it is cut off.
func (m *model) tickOf(n *instance) {
	leads := m.leader != nil && m.leader.instance == n
	// Less often than in reality, but within GAP: ticks are most of a search's cost.
	n.tick = time.Now().Add(time.Duration((0.3 + 0.6*m.rng.Float64()) * float64(n.ttl-n.interval) / 2))
	if n.cut {
		return
	}
	w, err := n.janitor.Tick(m.ctx, leads)
	if err != nil {
		m.giveUp(err)
		return
	}
	if w.Listening == 0 {
		m.say("%s's tick holds: %s, %s", n.id, w.Reason, w.HeldFor)
		m.Count(w.Reason, 1)
	}
}

// giveUp ends an episode in which a real deadline passed, so that the server's state is unknown.
func (m *model) giveUp(err error) {
	if !strings.Contains(err.Error(), "timeout") && !strings.Contains(err.Error(), "deadline") {
		m.found("unexpected: %v", err)
	}
	m.gaveUp = true
	m.Count("episodes given up", 1)
}

// look is the leader's look once a second.
func (m *model) look() {
	m.lookDue = time.Time{}
	l := m.leader
	time.Sleep(2 * time.Millisecond)
	if err := l.t.ReadRoster(m.ctx); err != nil { // the model skips looks between which nothing changes
		m.giveUp(err)
		return
	}
	for _, n := range m.instances {
		if !n.old && !n.expires.IsZero() {
			l.seen[n] = true
		}
	}
}

// elect gives an instance the lease and opens its term.
func (m *model) elect(n *instance) {
	m.epoch++
	l := &leader{
		instance: n, term: &modelTerm{token: fmt.Sprint(n.id, "/", m.epoch), epoch: m.epoch}, began: time.Now(),
		seen: map[*instance]bool{}, mute: map[*instance]bool{},
	}
	for _, o := range m.instances {
		o.scanned = false
		l.mute[o] = o.listed && m.silent(o) && m.entries(o) > 0
	}
	var ctx context.Context
	ctx, l.end = context.WithCancelCause(m.ctx)
	m.do(func(p redis.Pipeliner) { p.Set(m.ctx, m.Lease(), l.term.token, 0) })
	l.t = NewTerm(ctx, n.janitor, l.term, l.end)
	if err := l.t.Open(); err != nil {
		l.end(nil)
		m.leader = nil
		return
	}
	m.epoch = l.term.epoch
	m.say("%s leads, epoch %d", n.id, m.epoch)
	if m.stale != nil {
		m.stale.end(nil)
	}
	m.stale, m.leader = m.leader, l
}

// sweep runs one pass of a leader and checks its evictions with the oracle.
func (m *model) sweep(l *leader, which int) {
	if l == nil || m.down || l.cut || !l.alive || l.t.Over() {
		return
	}
	m.Count("passes", 1)
	breaker := m.db.HGet(m.ctx, m.Witness(), "mass_failure").Val()
	s := l.janitor.SweepAt(which)
	r := l.t.Pass(s)
	m.say("%s's %s: %s %s %d evicted of %d condemned", l.id, r.Sweep, r.Outcome, r.Reason, r.Evicted, r.Condemned)
	var after *redis.StringCmd
	var left *redis.MapStringStringCmd
	_, _ = m.db.Pipelined(m.ctx, func(p redis.Pipeliner) error { // each command has its own error
		after, left = p.HGet(m.ctx, m.Witness(), "mass_failure"), p.HGetAll(m.ctx, m.Registry())
		return nil
	})
	if after.Val() != breaker {
		m.Count("mass_failure", 1)
	}
	if r.Outcome == Failed {
		m.giveUp(fmt.Errorf("%s", r.Error))
		return
	}
	stands, err := left.Result()
	require.NoError(m.t, err)
	gone := 0
	for _, imei := range slices.Sorted(keysOf(m.present)) {
		if stands[imei] == "" {
			gone++
			m.judge(l, r.Sweep, imei, m.present[imei], breaker)
		}
	}
	for imei := range m.present {
		if stands[imei] == "" {
			m.present[imei].written = false // its index has lost it too
			delete(m.present, imei)
		}
	}
	if gone != r.Evicted {
		m.found("%d entries went, the report says %d", gone, r.Evicted)
	}
	m.Count(evicted, gone)
	if s.Name() == "registry" && r.Outcome == Done {
		l.full = true
		for _, n := range m.instances {
			if !n.expires.IsZero() {
				l.seen[n] = true
			}
			n.scanned = n.scanned || m.silent(n)
		}
	}
}
