package model_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

func TestOwnersBearTheTracesOfTheirModel(t *testing.T) {
	t.Parallel()
	replays(t, "owners", map[string]change{
		"NO_BOOT_TOKEN": {old: "if token and #token == 26 and token > ARGV[2] and", new: "if false and"},
		"NO_LIFE_FIRST": {old: "  redis.call('SET', KEYS[1], text(now) .. '/' .. ARGV[2], 'PX', ARGV[3])\n"},
		"RELEASE_ANY":   {old: "if before[i] == ARGV[1] then", new: "if before[i] then"},
		"HEAL_ANY": {
			old: "if now and now ~= me and now ~= '' and not (dead and dead[now]) then", new: "if false then",
		},
		"NO_SUCCESSION":   {old: "(dead and dead[now])", new: "false"},
		"OVER_THE_LIVING": {old: "redis.call('EXISTS', KEYS[i]) == 0", new: "true", also: " and state ~= 'p' and (state == 'b' or last + ttl <= now) and now - since >= due"},
		"OVER_A_RECORD":   {old: "(state == 'b' or last + ttl <= now) and "},
		"NO_HEAL":         {old: "  redis.call('HSET', KEYS[5], unpack(set))\n"},
		"NO_INDEX":        {old: "index('SADD', ARGV, 9)"},
		"NO_TIMES":        inGo,
		"LANDING":         inGo,
		"NOBODY_ASKED":    inGo,
		"NO_HANDING_BACK": inGo,
		"NO_FULL_SCAN":    inGo,
	}, func(t *testing.T, s *server, tr trace) []string {
		r := &ownersReplay{server: s, client: s.client(""), at: -1, lives: map[int]*life{}, robbed: map[string]bool{}, scripts: map[string]*redis.Script{}}
		for _, name := range []string{"register", "release", "goodbye", "heal", "beat"} {
			r.scripts[name] = s.script("internal/guard/settings", "internal/guard/former",
				"registry/record", "registry/owner", "registry/"+name)
		}
		r.scripts["boot"] = s.script("internal/guard/settings", "internal/guard/former",
			"registry/record", "registry/boot")
		r.guard = guard.New(r.client, r.client, r.Layout, guard.Timing{Interval: 9 * time.Second, TTL: 2 * time.Hour}, "leader")
		require.NoError(t, s.Set(t.Context(), r.Heartbeat("leader"), "1/1", 0).Err())
		for n := range 3 {
			r.lives[n] = &life{n: n, id: "one"}
		}
		r.lives[2].id = "two"
		for _, event := range tr.events {
			r.happens(t.Context(), event)
		}
		return r.broken
	})
}

// ownersReplay is what owners.pml knows besides what Redis holds: mostly what table.go does.
type ownersReplay struct {
	*server
	guard.Layout
	client    *redis.Client // whose scripts are changed
	scripts   map[string]*redis.Script
	guard     *guard.Guard
	epoch     uint64
	lives     map[int]*life
	at, clock int             // the life that the device is connected to, and the newest handshake
	robbed    map[string]bool // ids whose heartbeat Redis lost
	indexLost bool
	broken    []string
}

type life struct {
	n     int
	id    string
	token string
	runs  bool
	late  bool // a registration of it is held up
	claim claim
	seen  string // the foreign id that stood in the entry
	time  int    // of its handshake
}

type claim int

const (
	none claim = iota
	registering
	held
	releasing
)

func (r *ownersReplay) breaks(what string) { r.broken = append(r.broken, what) }

func (r *ownersReplay) happens(ctx context.Context, event string) {
	var n int
	switch {
	case match(event, "life %d boots", &n):
		r.boot(ctx, r.lives[n])
	case match(event, "the device connects to life %d", &n):
		r.at = n
		r.clock++
		r.lives[n].claim, r.lives[n].seen, r.lives[n].time = registering, "", r.clock
	case match(event, "life %d registers", &n):
		r.register(ctx, r.lives[n])
	case match(event, "a registration of life %d is held up", &n):
		r.lives[n].late = true
	case match(event, "the registration of life %d is lost", &n):
		r.lives[n].late = false
	case match(event, "the registration of life %d lands", &n):
		r.lives[n].late = false
		r.owner(ctx, r.lives[n], "register", device)
	case match(event, "the socket at life %d closes", &n):
		r.closes(r.lives[n])
	case match(event, "life %d releases", &n):
		r.release(ctx, r.lives[n])
	case match(event, "life %d checks its entry", &n):
		r.heal(ctx, r.lives[n])
	case match(event, "life %d asks the owner that it has seen", &n):
		r.asks(ctx, r.lives[n])
	case match(event, "life %d hands back what it does not hold", &n):
		r.handBack(ctx, r.lives[n])
	case match(event, "life %d beats", &n):
		r.owner(ctx, r.lives[n], "beat", r.grace(), "", "")
	case match(event, "life %d says goodbye", &n):
		r.owner(ctx, r.lives[n], "goodbye", 0)
		r.ends(r.lives[n])
	case match(event, "life %d dies", &n):
		r.ends(r.lives[n])
	case match(event, "the heartbeat of id %d expires", &n):
		r.silence(ctx, r.id(n))
	case match(event, "Redis loses the heartbeat of id %d", &n):
		require.NoError(r.t, r.Del(ctx, r.Heartbeat(r.id(n))).Err())
		r.robbed[r.id(n)] = true
	case match(event, "the leader sweeps id %d", &n):
		r.sweeps(ctx, r.id(n))
	case event == "Redis loses the entry":
		require.NoError(r.t, r.HDel(ctx, r.Registry(), device).Err())
	case event == "Redis loses all":
		r.indexLost = true
		for n := range 2 {
			r.robbed[r.id(n+1)] = r.robbed[r.id(n+1)] || r.beats(ctx, r.id(n+1))
		}
		require.NoError(r.t, r.FlushAll(ctx).Err())
		require.NoError(r.t, r.Set(ctx, r.Heartbeat("leader"), "1/1", 0).Err())
	case match(event, "Redis loses the index of id %d", &n):
		r.indexLost = true
		require.NoError(r.t, r.Del(ctx, r.Devices(r.id(n))).Err())
	case match(event, "faults end, life %d is first", &n):
		r.faultsEnd(ctx, n, true)
	case event == "faults end, nobody sweeps":
		r.faultsEnd(ctx, 0, false)
	default:
		require.Fail(r.t, "what is this?", event)
	}
}

func (r *ownersReplay) id(n int) string { return map[int]string{1: "one", 2: "two"}[n] }

func (r *ownersReplay) grace() int64 { return quick.Grace().Milliseconds() }

func (r *ownersReplay) entry(ctx context.Context) string {
	return r.HGet(ctx, r.Registry(), device).Val()
}

func (r *ownersReplay) beats(ctx context.Context, id string) bool {
	return r.Exists(ctx, r.Heartbeat(id)).Val() == 1
}

// silence has the heartbeat of an id expire, and so the time in its record. The leader writes the
// record of one that has none.
func (r *ownersReplay) silence(ctx context.Context, id string) {
	require.NoError(r.t, r.Del(ctx, r.Heartbeat(id)).Err())
	record, _ := r.record(id)
	if record.TTL == 0 {
		record = doubt.Record{TTL: time.Hour.Milliseconds(), State: doubt.Plain}
	}
	r.proved(id, record, long/2)
	r.robbed[id] = false
}

func (r *ownersReplay) boot(ctx context.Context, l *life) {
	keys, args := r.own(l.id, "", time.Hour, quick.Interval)
	args = append(args, fmt.Sprintf("%010d", l.n), r.grace())
	answer, err := r.scripts["boot"].Run(ctx, r.client, keys, args...).Slice()
	require.NoError(r.t, err)
	l.token, l.runs = answer[0].(string), true
	r.robbed[l.id] = false
}

func (r *ownersReplay) ends(l *life) {
	l.runs, l.claim, l.seen = false, none, ""
	if r.at == l.n {
		r.at = -1
	}
}

func (r *ownersReplay) closes(l *life) {
	l.claim, l.seen = releasing, ""
	if r.at == l.n {
		r.at = -1
	}
}

// asks has two owners compare their handshakes: the older one gives way. All messages arrive.
func (r *ownersReplay) asks(ctx context.Context, l *life) {
	for n := range 3 {
		m := r.lives[n]
		switch open := m.claim == held || m.claim == registering; {
		case !l.runs || l.claim != held || l.seen == "" || !m.runs || m.id != l.seen:
		case m.claim == none:
			r.handBack(ctx, m)
		case open && m.time < l.time:
			r.loses(m)
		case open:
			r.loses(l)
		}
	}
}

func (r *ownersReplay) loses(l *life) {
	if r.at == l.n {
		r.breaks("a living socket is closed")
	}
	l.claim, l.seen = releasing, ""
}

// owner runs one of the scripts of an owner; false: it is superseded, and ends. An entry that the
// script has written needs a heartbeat.
func (r *ownersReplay) owner(ctx context.Context, l *life, name string, more ...any) (out []any, ok bool) {
	before := r.entry(ctx)
	defer func() { r.robbed[l.id] = r.robbed[l.id] && !r.beats(ctx, l.id) }()
	keys, args := r.own(l.id, l.token, time.Hour, quick.Interval)
	if name == "heal" && len(more) > 1 {
		keys = append(keys, r.Heartbeat(l.seen))
	}
	out, err := r.scripts[name].Run(ctx, r.client, keys, append(args, more...)...).Slice()
	require.NoError(r.t, err)
	if len(out) == 1 {
		require.Equal(r.t, "SUPERSEDED", out[0])
		if name != "register" || l.claim == registering {
			r.ends(l)
		}
		return nil, false
	}
	if now := r.entry(ctx); now != "" && now != before && !r.beats(ctx, now) {
		r.breaks("an entry without a heartbeat")
	}
	return out, true
}

func (r *ownersReplay) register(ctx context.Context, l *life) {
	if _, ok := r.owner(ctx, l, "register", device); ok {
		l.claim, l.seen = held, ""
	}
}

func (r *ownersReplay) release(ctx context.Context, l *life) {
	before := r.entry(ctx)
	if _, ok := r.owner(ctx, l, "release", device); !ok {
		return
	}
	l.claim = none
	if before != "" && r.entry(ctx) == "" {
		if before != l.id {
			r.breaks("a release of another's entry")
		}
		if r.at > l.n && r.lives[r.at].id == l.id && r.lives[r.at].claim == held {
			r.breaks("a release of what a newer life has")
		}
	}
}

func (r *ownersReplay) heal(ctx context.Context, l *life) {
	before, args := r.entry(ctx), []any{device}
	silent := before != "" && !r.beats(ctx, before) && !r.robbed[before]
	if l.seen != "" {
		args = append(args, quick.Gap().Milliseconds())
		r.listens(ctx)
	}
	out, ok := r.owner(ctx, l, "heal", args...)
	if !ok {
		return
	}
	if out[5] == int64(-1) { // not now: the entry is looked up instead
		if out, ok = r.owner(ctx, l, "heal", device); !ok {
			return
		}
	}
	l.seen = ""
	if foreign := out[6].([]any); len(foreign) > 0 {
		l.seen = foreign[1].(string)
	}
	if before != "" && before != l.id && r.entry(ctx) == l.id && r.at != l.n &&
		(len(args) == 1 || r.at >= 0 && r.lives[r.at].id == before && !silent) {
		r.breaks("theft: the device is elsewhere")
	}
}

// listens has the witness have listened for long.
func (r *ownersReplay) listens(ctx context.Context) {
	_, err := r.guard.Tick(ctx)
	require.NoError(r.t, err)
	r.shift(-long, "since")
}

func (r *ownersReplay) handBack(ctx context.Context, l *life) {
	if l.claim == none && (r.entry(ctx) == l.id || r.SIsMember(ctx, r.Devices(l.id), device).Val()) {
		r.release(ctx, l)
	}
}

// sweeps is what a leader does to a silent owner: through its index, or by a full scan.
func (r *ownersReplay) sweeps(ctx context.Context, id string) {
	if r.beats(ctx, id) || r.robbed[id] || !r.indexLost && !r.SIsMember(ctx, r.Devices(id), device).Val() {
		return
	}
	r.listens(ctx)
	r.epoch++
	a := r.sweep(ctx, r.guard, guard.Lease{Token: "leader/1", Epoch: r.epoch}, id, device)
	require.Equal(r.t, guard.Done, a.Verdict)
}

// due is all that a life has to do.
func (r *ownersReplay) due(ctx context.Context, l *life) {
	if !l.runs {
		return
	}
	if _, ok := r.owner(ctx, l, "beat", r.grace(), "", ""); !ok {
		return
	}
	switch l.claim {
	case registering:
		r.register(ctx, l)
	case releasing:
		r.release(ctx, l)
	case held:
		r.heal(ctx, l)
		r.heal(ctx, l)
		r.asks(ctx, l)
	case none:
		r.handBack(ctx, l)
	}
}

func (r *ownersReplay) faultsEnd(ctx context.Context, first int, swept bool) {
	running := map[string]bool{}
	for n := range 3 {
		l := r.lives[n]
		if l.late {
			l.late = false
			r.owner(ctx, l, "register", device)
		}
		running[l.id] = running[l.id] || l.runs
	}
	for id, runs := range running {
		if !runs {
			r.silence(ctx, id)
		}
	}
	for _, n := range []int{0, 2, 1} {
		if l := r.lives[n]; l.runs && (n != 0 || !r.lives[1].runs) {
			r.owner(ctx, l, "beat", r.grace(), "", "")
		}
	}
	order := []int{0, 1, 2}
	if first == 2 {
		order = []int{2, 1, 0}
	}
	for range 3 {
		for _, n := range order {
			r.due(ctx, r.lives[n])
		}
		if swept {
			r.sweeps(ctx, "one")
			r.sweeps(ctx, "two")
		}
	}
	want := ""
	if r.at >= 0 {
		want = r.lives[r.at].id
	}
	got := r.entry(ctx)
	for _, l := range r.lives { // a half-open socket without a rival stays
		if want == "" && l.runs && l.id == got && (l.claim == held || l.claim == registering) {
			return
		}
	}
	if got != want && (swept || want != "") || want != "" && !r.beats(ctx, want) {
		r.breaks(strings.TrimSpace("lost progress: the entry names " + got))
	}
}
