package model_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestOwnersBearTheTracesOfTheirModel(t *testing.T) {
	t.Parallel()
	replays(t, "owners", map[string]change{
		"NO_BOOT_TOKEN": {old: "if token and #token == 26 and token > ARGV[2] and", new: "if false and"},
		"NO_LIFE_FIRST": {old: "  redis.call('SET', KEYS[1], ms .. '/' .. ARGV[2], 'PX', ARGV[3])\n"},
		"RELEASE_ANY":   {old: "if found[i] == ARGV[1] then", new: "if found[i] then"},
		"HEAL_ANY": {
			old: "elseif not now or now == '' or (now == seen and (not dead or dead[seen])) then", new: "elseif true then",
		},
		"NO_SUCCESSION":   {old: "(not dead or dead[seen])", new: "not dead"},
		"OVER_THE_LIVING": {old: "if redis.call('EXISTS', KEYS[i]) == 0 then", new: "if true then"},
		"OVER_IN_A_HOLD":  {old: "if now - since < need then return end"},
		"NO_HEAL":         {old: "  redis.call('HSET', KEYS[5], unpack(set))\n"},
		"NO_INDEX":        {old: "index('SADD', ARGV, 5)"},
		"OLD_EVIDENCE":    inGo,
		"NO_HANDING_BACK": inGo,
		"NO_FULL_SCAN":    inGo,
	}, func(t *testing.T, s *server, tr trace) []string {
		r := &ownersReplay{server: s, client: s.client(""), at: -1, lives: map[int]*life{}, robbed: map[string]bool{}, scripts: map[string]*redis.Script{}}
		for _, name := range []string{"register", "release", "goodbye"} {
			r.scripts[name] = s.script("registry/owner", "registry/"+name)
		}
		r.scripts["heal"] = s.script("guard/server", "guard/settings", "guard/witness", "registry/owner", "registry/heal")
		r.scripts["boot"] = s.script("guard/settings", "registry/boot")
		r.scripts["beat"] = s.script("guard/settings", "registry/owner", "registry/beat")
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
	at        int // the life that the device is connected to
	held      bool
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
	proof bool
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
		r.lives[n].claim, r.lives[n].seen = registering, ""
		for _, l := range r.lives { // evidence ages, and a device needs longer to connect anew
			l.proof = false
		}
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
	case match(event, "a frame arrives at life %d", &n):
		r.frame(r.lives[n])
	case match(event, "life %d hands back what it does not hold", &n):
		r.handBack(ctx, r.lives[n])
	case match(event, "life %d beats", &n):
		r.owner(ctx, r.lives[n], "beat", r.grace())
	case match(event, "life %d says goodbye", &n):
		r.owner(ctx, r.lives[n], "goodbye", 0)
		r.ends(r.lives[n])
	case match(event, "life %d dies", &n):
		r.ends(r.lives[n])
	case match(event, "the heartbeat of id %d expires", &n):
		require.NoError(r.t, r.Del(ctx, r.Heartbeat(r.id(n))).Err())
		r.robbed[r.id(n)] = false
	case match(event, "Redis loses the heartbeat of id %d", &n):
		require.NoError(r.t, r.Del(ctx, r.Heartbeat(r.id(n))).Err())
		r.held, r.robbed[r.id(n)] = true, true
	case event == "the hold ends":
		r.held = false
	case match(event, "the leader sweeps id %d", &n):
		r.sweep(ctx, r.id(n))
	case event == "Redis loses the entry":
		require.NoError(r.t, r.HDel(ctx, r.Registry(), device).Err())
	case event == "Redis loses all":
		r.indexLost, r.held = true, true
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
	case event == "faults end, nobody sweeps, the device is silent":
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

func (r *ownersReplay) boot(ctx context.Context, l *life) {
	keys := []string{r.Heartbeat(l.id), r.Roster(), r.Witness()}
	args := []any{l.id, fmt.Sprintf("%010d", l.n), time.Hour.Milliseconds(), r.grace()}
	token, err := r.scripts["boot"].Run(ctx, r.client, keys, args...).Text()
	require.NoError(r.t, err)
	l.token, l.runs = token, true
}

func (r *ownersReplay) ends(l *life) {
	l.runs, l.claim, l.seen, l.proof = false, none, "", false
	if r.at == l.n {
		r.at = -1
	}
}

func (r *ownersReplay) closes(l *life) {
	l.claim, l.seen, l.proof = releasing, "", false
	if r.at == l.n {
		r.at = -1
	}
}

func (r *ownersReplay) frame(l *life) { l.proof = l.claim == held && l.seen != "" && r.at == l.n }

// owner runs one of the scripts of an owner; false: it is superseded, and ends. An entry that the
// script has written needs a heartbeat.
func (r *ownersReplay) owner(ctx context.Context, l *life, name string, more ...any) (out []any, ok bool) {
	before := r.entry(ctx)
	defer func() { r.robbed[l.id] = r.robbed[l.id] && !r.beats(ctx, l.id) }()
	keys := []string{r.Heartbeat(l.id), r.Roster(), r.Devices(l.id), r.Witness(), r.Registry()}
	if name == "heal" && len(more) > 2 {
		keys = append(keys, r.Heartbeat(l.seen))
	}
	args := append([]any{l.id, l.token, time.Hour.Milliseconds(), "1"}, more...)
	out, err := r.scripts[name].Run(ctx, r.client, keys, args...).Slice()
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
		l.claim, l.seen, l.proof = held, "", false
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
	before, pair := r.entry(ctx), []any{device, ""}
	silent := before != "" && !r.beats(ctx, before) && !r.robbed[before]
	switch {
	case l.proof:
		pair[1] = l.seen
	case l.seen != "":
		pair = []any{device, l.seen, quick.Gap().Milliseconds(), r.grace(), "1"}
		r.listens(ctx)
	}
	out, ok := r.owner(ctx, l, "heal", pair...)
	if !ok {
		return
	}
	if out[5] == int64(-1) { // not now: the entry is looked up instead
		if out, ok = r.owner(ctx, l, "heal", device, ""); !ok {
			return
		}
	}
	l.seen, l.proof = "", false
	if foreign := out[6].([]any); len(foreign) > 0 {
		l.seen = foreign[1].(string)
	}
	if before != "" && before != l.id && r.entry(ctx) == l.id && r.at != l.n &&
		(len(pair) == 2 || r.at >= 0 && r.lives[r.at].id == before && !silent) {
		r.breaks("theft: the device is elsewhere")
	}
}

// listens has the witness have listened for long, or hold.
func (r *ownersReplay) listens(ctx context.Context) {
	_, err := guard.New(r.Client, r.Client, r.Layout, quick, "other").Tick(ctx)
	require.NoError(r.t, err)
	require.NoError(r.t, r.HDel(ctx, r.Witness(), "disagreed").Err()) // the replay's own settings differ
	if r.shift(-long, "since"); r.held {
		require.NoError(r.t, r.HSet(ctx, r.Witness(), "since", time.Now().UnixMilli()).Err())
	}
}

func (r *ownersReplay) handBack(ctx context.Context, l *life) {
	if l.claim == none && (r.entry(ctx) == l.id || r.SIsMember(ctx, r.Devices(l.id), device).Val()) {
		r.release(ctx, l)
	}
}

// sweep is what a leader does to a silent owner: through its index, or by a full scan.
func (r *ownersReplay) sweep(ctx context.Context, id string) {
	if r.beats(ctx, id) || !r.indexLost && !r.SIsMember(ctx, r.Devices(id), device).Val() {
		return
	}
	_, err := r.guard.Tick(ctx)
	require.NoError(r.t, err)
	r.shift(-long, "since")
	r.epoch++
	l := guard.Lease{Token: "leader/1", Epoch: r.epoch}
	require.NoError(r.t, r.Set(ctx, r.Lease(), l.Token, 0).Err())
	_, _, err = r.guard.Open(ctx, l)
	require.NoError(r.t, err)
	a, err := r.guard.Do(ctx, guard.Batch{
		ID: guard.BatchID{Epoch: r.epoch, N: 1}, Token: l.Token, Sweep: "registry", Owner: id,
		Body: registry.EvictEntries, Keys: registry.EntryKeys(r.Layout, id), Items: []string{device},
	})
	require.NoError(r.t, err)
	require.Equal(r.t, guard.Done, a.Verdict)
}

// due is all that a life has to do.
func (r *ownersReplay) due(ctx context.Context, l *life, frames bool) {
	if !l.runs {
		return
	}
	if _, ok := r.owner(ctx, l, "beat", r.grace()); !ok {
		return
	}
	switch l.claim {
	case registering:
		r.register(ctx, l)
	case releasing:
		r.release(ctx, l)
	case held:
		r.heal(ctx, l)
		if frames {
			r.frame(l)
		}
		r.heal(ctx, l)
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
		if l.runs && r.at != n && (l.claim == held || l.claim == registering) {
			r.closes(l) // half open
		}
	}
	for id, runs := range running {
		if !runs {
			require.NoError(r.t, r.Del(ctx, r.Heartbeat(id)).Err())
		}
	}
	for _, n := range []int{0, 2, 1} { // each beats before a hold ends
		if l := r.lives[n]; l.runs && (n != 0 || !r.lives[1].runs) {
			r.owner(ctx, l, "beat", r.grace())
		}
	}
	r.held, r.robbed = false, map[string]bool{}
	order := []int{0, 1, 2}
	if first == 2 {
		order = []int{2, 1, 0}
	}
	for range 2 {
		for _, n := range order {
			r.due(ctx, r.lives[n], swept)
		}
		if swept {
			r.sweep(ctx, "one")
			r.sweep(ctx, "two")
		}
	}
	want := ""
	if r.at >= 0 {
		want = r.lives[r.at].id
	}
	if got := r.entry(ctx); got != want && (swept || want != "") || want != "" && !r.beats(ctx, want) {
		r.breaks(strings.TrimSpace("lost progress: the entry names " + got))
	}
}
