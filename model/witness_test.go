package model_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// aTick is a tick of the model's time. GRACE is TTL + 2 s, and so within the next tick; GAP is half
// a second more than whole ticks, for what the replay itself takes.
const aTick = 10 * time.Second

var (
	quick = guard.Timing{Interval: 9 * time.Second, TTL: 3 * aTick}
	slow  = guard.Timing{Interval: 27 * time.Second, TTL: 9 * aTick}
)

// ownGrace is where the guard asks the GRACE of the owner itself.
const ownGrace = "if now - since < grace then return 'WAIT', 'held' end"

func TestTheWitnessBearsTheTracesOfItsModel(t *testing.T) {
	t.Parallel()
	replays(t, "witness", map[string]change{
		"NO_RUN_ID":      {old: "id ~= '' and w.server ~= id or "},
		"NO_CONNECTIONS": {old: "fell(w.connections, connections) or "},
		"NO_COMMANDS":    {old: "fell(w.commands, commands) or "},
		"NO_REFUSED":     {old: "w.refused and w.refused ~= refused or ", new: ""},
		"UNREADABLE_PASSES": {
			old: "w.refused and w.refused ~= refused or", new: "w.refused and refused ~= '' and w.refused ~= refused or",
		},
		"NO_GAP":             {old: " or now - last > tonumber(gap)"},
		"NO_FUTURE":          {old: " or since > now or last > now"},
		"NO_GRACE":           {old: "if now - since < need then return answer('HELD'", new: "if false then return answer('HELD'", also: ownGrace},
		"NO_OWN_GRACE":       {old: ownGrace},
		"NO_SETTINGS":        {old: "    reason = 'settings'\n"},
		"BEATS_TELL_NOTHING": {old: "if not w.err and w[1] and w[1] ~= grace then", new: "if false then"},
		"BEATS_HIDE_BEATS":   {old: "'grace', '0')", new: "'grace', grace)"},
		"TICK_WHEN_FULL":     {allowFull: true},
		"TICK_WHILE_MOVING":  {without: neverKey},
		"NOT_RECORDED":       {old: "  put('server', id)\n", also: "  put('replication', replication)\n"},
		"NO_RECORD":          {old: "if state ~= 'b' and fell > now then return 'ALIVE' end"},
		// What is asserted of these is that something is deleted, and so it is.
		"NOTHING_SWEPT":        sweeps,
		"BUSY_AFTER_RESETSTAT": sweeps,
	}, func(t *testing.T, s *server, tr trace) []string {
		r := &witnessReplay{
			server: s, timing: [2]guard.Timing{quick, quick},
			beats: s.script("internal/guard/settings", "internal/guard/former", "registry/record",
				"registry/owner", "registry/beat"),
		}
		r.users = map[bool]*redis.Client{false: s.client(""), true: s.client("info")}
		for i := range 2 { // entries of both stand all the time
			require.NoError(t, s.HSet(t.Context(), r.Registry(), device+id(i), id(i)).Err())
		}
		for _, event := range tr.events {
			r.happens(t.Context(), event)
		}
		return r.broken
	})
}

func id(owner int) string { return fmt.Sprint("owner-", owner) }

// witnessReplay is what witness.pml knows besides what Redis holds.
type witnessReplay struct {
	*server
	guard.Layout
	users    map[bool]*redis.Client // by whether one may not INFO
	poor     [2]bool                // the owner may not
	timing   [2]guard.Timing
	state    string // of the server, in this tick
	epoch    uint64
	outlasts [2]time.Duration // since the last beats, before the clock jumped
	beats    *redis.Script
	broken   []string // of whom entries were deleted, though it lives
}

func (r *witnessReplay) guard(owner int) *guard.Guard {
	c := r.users[r.poor[owner]]
	return guard.New(c, c, r.Layout, r.timing[owner], id(owner))
}

func (r *witnessReplay) happens(ctx context.Context, event string) {
	var n, of int
	start, params, _ := strings.Cut(event, ", ")
	switch {
	case event == "owner 0 has ticked for long, as owner 0 and 1 beat":
		r.beat(ctx, 0)
		r.beat(ctx, 1)
		_, err := r.guard(0).Tick(ctx)
		require.NoError(r.t, err)
		r.shift(-long, "since")
	case match(event, "owner %d ticks", &n):
		_, err := r.guard(n).Tick(ctx)
		if slices.Contains([]string{"", "Redis turns owner 1 away"}, r.state) {
			require.NoError(r.t, err)
		}
	case match(event, "owner %d beats", &n):
		r.beat(ctx, n)
	case event == "owner 1 ends":
		r.poor[1] = false
	case start == "owner 1 starts":
		r.timing[1], r.poor[1] = quick, strings.Contains(params, "without INFO")
		if strings.Contains(params, "slow") {
			r.timing[1] = slow
		}
		r.beat(ctx, 1)
	case match(event, "owner %d leads and deletes of owner %d", &n, &of):
		r.leads(ctx, n, of)
	case event == "Redis restarts", event == "a replica is promoted":
		r.becomesAnother(ctx)
	case event == "it lacks the last tick":
		r.shift(-aTick, "last")
	case match(event, "it lacks the last beats of owner %d", &n):
		record, _ := r.record(id(n))
		r.proved(id(n), record, r.timing[n].TTL)
	case start == "the counters start anew":
		require.NoError(r.t, r.ConfigResetStat(ctx).Err())
		for _, counter := range []string{"connections", "commands"} {
			r.records(ctx, counter, 0) // as many, or more
			if strings.Contains(params, "are as many") && !strings.Contains(params, counter) {
				r.records(ctx, counter, 1e12)
			}
		}
	case event == "the clock jumps forward":
		for i := range 2 {
			_, r.outlasts[i] = r.record(id(i))
		}
		r.older(time.Hour)
	case match(event, "the heartbeat of owner %d outlasts that", &n):
		record, _ := r.record(id(n))
		r.proved(id(n), record, r.outlasts[n])
	case event == "the clock jumps back":
		r.shift(time.Hour, times...)
	case event == "somebody deletes the witness":
		require.NoError(r.t, r.Del(ctx, r.Witness()).Err())
	case event == "faults end":
		r.faultsEnd(ctx)
	case start == "a tick of time":
		r.passes(ctx, params)
	default:
		require.Fail(r.t, "what is this?", event)
	}
}

func (r *witnessReplay) records(ctx context.Context, counter string, n int64) {
	if r.HExists(ctx, r.Witness(), counter).Val() {
		require.NoError(r.t, r.HSet(ctx, r.Witness(), counter, n).Err())
	}
}

// becomesAnother makes the server another than the recorded one, whose counters were as high.
func (r *witnessReplay) becomesAnother(ctx context.Context) {
	other := strings.Repeat("0", 40)
	require.NoError(r.t, r.HSet(ctx, r.Witness(), "server", other, "replication", other).Err())
	for _, counter := range []string{"connections", "commands"} {
		r.records(ctx, counter, 0)
	}
}

// beat is a heartbeat, as the registry sends it.
func (r *witnessReplay) beat(ctx context.Context, owner int) {
	timing, c := r.timing[owner], r.users[r.poor[owner]]
	keys, args := r.own(id(owner), strings.Repeat("1", 26), timing.TTL, timing.Interval)
	args = append(args, timing.Grace().Milliseconds(), "", "")
	require.NoError(r.t, r.beats.Run(ctx, c, keys, args...).Err())
}

// passes has a tick of time go by, into a state of the server.
func (r *witnessReplay) passes(ctx context.Context, state string) {
	if r.state == "memory is full" {
		require.NoError(r.t, r.ConfigSet(ctx, "maxmemory", "0").Err())
	}
	r.older(aTick)
	r.state, r.refuse = state, nil
	switch state {
	case "", "Redis does not answer":
	case "memory is full":
		require.NoError(r.t, r.ConfigSet(ctx, "maxmemory", "1").Err())
	case "the slot moves": // a Redis Cluster refuses what names a key that has moved, or does not exist
		r.refuse = func(keys []string) bool {
			return slices.ContainsFunc(keys, func(key string) bool {
				return strings.HasPrefix(key, r.Heartbeat("")) || r.Exists(ctx, key).Val() == 0
			})
		}
	case "the slot has moved":
		r.state = ""
		r.becomesAnother(ctx)
	case "Redis turns owner 1 away":
		r.turnsAway(ctx)
	default:
		require.Fail(r.t, "what is this?", state)
	}
}

// turnsAway has the server refuse a client, as it does again and again while an owner tries.
func (r *witnessReplay) turnsAway(ctx context.Context) {
	o := *r.options
	o.Username, o.Password, o.MaxRetries = id(1), "wrong", -1
	c := redis.NewClient(&o)
	require.ErrorContains(r.t, c.Ping(ctx).Err(), "WRONGPASS")
	require.NoError(r.t, c.Close())
}

// faultsEnd has owner 1 be dead: what names it goes within a GRACE and a tick.
func (r *witnessReplay) faultsEnd(ctx context.Context) {
	kept := slices.Clone(r.broken)
	for range slow.Grace()/aTick + 2 {
		record, _ := r.record(id(1))
		r.proved(id(1), record, slow.TTL)
		r.beat(ctx, 0)
		if r.leads(ctx, 0, 1); len(r.broken) > len(kept) {
			r.broken = kept
			return
		}
		r.older(aTick)
	}
	r.broken = append(kept, "lost progress: a doubt that does not end")
}

// leads has an owner lead, and ask for a batch. Redis evicts the heartbeat that it is about.
func (r *witnessReplay) leads(ctx context.Context, leader, of int) {
	r.epoch++
	require.NoError(r.t, r.Set(ctx, r.Heartbeat(id(leader)), "1/1", 0).Err())
	require.NoError(r.t, r.Del(ctx, r.Heartbeat(id(of))).Err())
	l := guard.Lease{Token: id(leader), Epoch: r.epoch}
	if a := r.sweep(ctx, r.guard(leader), l, id(of), device+id(of)); a.Deleted > 0 {
		r.broken = append(r.broken, id(of))
	}
}
