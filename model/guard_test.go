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

const device = "device"

// long is what listens for long enough.
const long = 10 * time.Hour

func TestTheGuardBearsTheTracesOfItsModel(t *testing.T) {
	t.Parallel()
	replays(t, "guard", map[string]change{
		"NO_ASKED_BEFORE": {old: "if asked[1] then\n  local f, v", new: "if false then\n  local f, v"},
		"NO_LEASE_TOKEN":  {old: "if redis.pcall('GET', KEYS[2]) ~= ARGV[2] then return answer('FENCED') end"},
		"NO_FENCE": {old: "    if string.find(ok.err, 'equal or smaller') or string.find(ok.err, 'exhausted') then " +
			"return answer('FENCED') end\n    return ok\n"},
		"NO_OPENING":      {old: "redis.pcall('XADD', KEYS[1], id, 'leader', ARGV[3], 'term', ARGV[2], ...)", new: "true"},
		"ANY_OPENING":     {old: "if f.term == ARGV[2] then return", new: "if true then return"},
		"LATE_OPENING":    {old: "if redis.pcall('GET', KEYS[2]) ~= ARGV[2] then return { 'FENCED', '' } end"},
		"OWNER_NOT_ASKED": {old: "if redis.call('EXISTS', KEYS[5]) == 1 then return 'ALIVE' end"},
		"OLD_READING":     {old: "if record ~= seen then return 'WAIT', 'stale' end"},
		"NOT_JUDGED_AGAIN": {
			old: "  if o == owner then", new: "  if o then",
		},
		"NO_RIGHTS_CHECK": {old: "local no = refused('HDEL', KEYS[6], 'x')\nif no then return no end"},
		"NO_REDRAW":       inGo,
		"SAME_DRAW":       inGo,
		"FATES_APART":     inGo,
	}, func(t *testing.T, s *server, tr trace) []string {
		r := &guardReplay{server: s, terms: map[int]*term{}, current: -1, state: doubt.Holds}
		r.connect("")
		require.NoError(t, s.HSet(t.Context(), r.Registry(), device, "dead").Err())
		require.NoError(t, s.Set(t.Context(), r.Heartbeat("leader"), "1/1", 0).Err())
		_, err := r.guard.Tick(t.Context())
		require.NoError(t, err)
		s.shift(-long, "since")
		r.proves(long / 2)
		for _, event := range tr.events {
			r.happens(t.Context(), event)
		}
		return r.broken
	})
}

// guardReplay is what guard.pml knows besides what Redis holds.
type guardReplay struct {
	*server
	guard.Layout
	guard   *guard.Guard
	state   doubt.State // of the owner's record
	terms   map[int]*term
	drawn   uint64
	deleted int // entries that went
	counted int // by processes
	current int // the term that opened last while it held the lease
	broken  []string
}

type term struct {
	guard.Lease
	met          uint64
	opened, open bool // the record is there; the term knows
	over         bool
	batches      map[int]account
	sent         map[int]guard.Batch
}

type account int

const (
	asked account = iota + 1
	refused
	counted
	never
)

func (r *guardReplay) connect(not string) {
	c := r.client(not)
	timing := guard.Timing{Interval: 9 * time.Second, TTL: 2 * time.Hour} // GAP is longer than a test
	r.guard = guard.New(c, c, r.Layout, timing, "leader")
}

func (r *guardReplay) term(n int) *term {
	if r.terms[n] == nil {
		r.terms[n] = &term{Lease: guard.Lease{Token: fmt.Sprintf("leader/%d", n)}, batches: map[int]account{}, sent: map[int]guard.Batch{}}
	}
	return r.terms[n]
}

// writes renews the record of an owner that writes one.
func (r *guardReplay) writes(ago time.Duration) {
	if r.state != doubt.Plain {
		r.proves(ago)
	}
}

func (r *guardReplay) proves(ago time.Duration) {
	r.proved("dead", doubt.Record{TTL: time.Hour.Milliseconds(), Due: time.Minute.Milliseconds(), State: r.state}, ago)
}

func (r *guardReplay) breaks(what string) { r.broken = append(r.broken, what) }

func (r *guardReplay) happens(ctx context.Context, event string) {
	var n, b int
	of, lost := strings.CutSuffix(event, ", the reply is lost")
	switch {
	case event == "the janitor's user may not HDEL":
		r.connect("hdel")
	case event == "the owner writes no record":
		r.state = doubt.Plain
		r.proves(long / 2)
	case event == "the lease ends":
		require.NoError(r.t, r.Del(ctx, r.Lease()).Err())
	case match(event, "the lease of term %d comes back", &n), match(event, "term %d wins the lease", &n):
		require.NoError(r.t, r.Set(ctx, r.Lease(), r.term(n).Token, 0).Err())
	case event == "the epoch drawn last is lost":
		r.drawn = 0
	case event == "the owner comes back and registers":
		require.NoError(r.t, r.Set(ctx, r.Heartbeat("dead"), "1/1", 0).Err())
		require.NoError(r.t, r.HSet(ctx, r.Registry(), device, "dead").Err())
		r.writes(0)
	case event == "the owner falls silent":
		require.NoError(r.t, r.Del(ctx, r.Heartbeat("dead")).Err())
		r.writes(long / 3)
	case event == "another owner registers the device":
		require.NoError(r.t, r.HSet(ctx, r.Registry(), device, "other").Err())
	case match(event, "term %d draws its epoch", &n):
		r.drawn = max(r.drawn, r.term(n).met) + 1
		r.term(n).Epoch = r.drawn
	case match(of, "term %d opens", &n):
		r.opens(ctx, n, !lost)
	case match(event, "term %d asks for batch %d", &n, &b):
		if r.term(n).open {
			r.term(n).batches[b] = asked
			r.term(n).sent[b] = r.batch(r.term(n).Lease, uint64(b), "dead", device)
		}
	case match(event, "term %d asks for batch %d again", &n, &b):
	case match(of, "batch %d of term %d arrives", &b, &n):
		if r.term(n).batches[b] != 0 {
			r.arrives(ctx, n, b, !lost)
		}
	case match(event, "term %d believes that it is over", &n):
		r.term(n).over = true
	case match(event, "term %d looks up what became of batch %d", &n, &b),
		match(event, "term %d finds that its lease is gone, and closes batch %d", &n, &b):
		r.looksUp(ctx, n, b)
	default:
		require.Fail(r.t, "what is this?", event)
	}
}

func (r *guardReplay) opens(ctx context.Context, n int, heard bool) {
	o := r.term(n)
	verdict, newest, err := r.guard.Open(ctx, o.Lease)
	require.NoError(r.t, err)
	if verdict == guard.Done && !o.opened && r.Get(ctx, r.Lease()).Val() == o.Token {
		o.opened, r.current = true, n
	}
	switch {
	case !heard:
	case verdict == guard.Done:
		o.open = true
	case verdict == guard.Stale:
		o.met = newest
	default:
		o.over = true
	}
}

func (r *guardReplay) arrives(ctx context.Context, n, b int, heard bool) {
	o := r.term(n)
	lives := r.Exists(ctx, r.Heartbeat("dead")).Val() == 1
	before := r.HGet(ctx, r.Registry(), device).Val()
	a, err := r.guard.Do(ctx, o.sent[b])
	if before != "" && !r.HExists(ctx, r.Registry(), device).Val() {
		r.deleted++
		judged := r.evidence("dead").Record
		if lives || before != "dead" || o.sent[b].Record != judged {
			r.breaks("a wrong delete")
		}
		if r.current != n {
			r.breaks("a delete after a newer term has begun")
		}
		if o.batches[b] == never {
			r.breaks("a delete of a batch that was settled as nothing")
		}
	}
	if r.logged(ctx) != r.deleted {
		r.breaks("the log is not what was deleted")
	}
	if err != nil || !heard {
		return // of unknown fate
	}
	switch {
	case a.Verdict == guard.Done && o.batches[b] <= refused:
		o.batches[b] = counted
		r.counts(ctx, a.Deleted)
	case a.Verdict == guard.Fenced && o.batches[b] == asked:
		if r.current == n && r.Get(ctx, r.Lease()).Val() == o.Token {
			r.breaks("the newest term ends, though it holds the lease")
		}
		o.over, o.batches[b] = true, refused
	case o.batches[b] == asked:
		o.batches[b] = refused
	}
}

func (r *guardReplay) looksUp(ctx context.Context, n, b int) {
	o := r.term(n)
	batch := o.sent[b]
	if o.batches[b] > refused {
		return
	}
	fate, err := r.guard.Fate(ctx, batch)
	require.NoError(r.t, err)
	switch {
	case fate.Verdict == guard.Done:
		o.batches[b] = counted
		r.counts(ctx, fate.Deleted)
	case fate.Settled:
		o.batches[b] = never
		if r.HGet(ctx, r.Witness(), "evicted_total").Val() == "1" && r.counted == 0 {
			r.breaks("a batch that ran was settled as nothing")
		}
	}
}

func (r *guardReplay) counts(ctx context.Context, deleted int) {
	if r.counted += deleted; r.counted > r.logged(ctx) {
		r.breaks("a process has counted more than the log has")
	}
}

// logged is the sum of the log's records.
func (r *guardReplay) logged(ctx context.Context) (sum int) {
	records, err := r.XRange(ctx, r.Log(), "-", "+").Result()
	require.NoError(r.t, err)
	for _, record := range records {
		n, ok := record.Values["count"]
		if !ok {
			continue
		}
		var count int
		_, err := fmt.Sscan(fmt.Sprint(n), &count)
		require.NoError(r.t, err)
		sum += count
	}
	return sum
}

var _ redis.Hook = (*server)(nil)
