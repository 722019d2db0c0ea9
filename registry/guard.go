package registry

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

//go:embed server.lua
var serverLua string

//go:embed settings.lua
var settingsLua string

//go:embed witness.lua
var witnessLua string

//go:embed tick.lua
var tickLua string

//go:embed guard.lua
var guardLua string

//go:embed evict.lua
var evictLua string

//go:embed open.lua
var openLua string

//go:embed forget.lua
var forgetLua string

//go:embed doubt.lua
var doubtLua string

var (
	tickScript   = redis.NewScript(serverLua + settingsLua + witnessLua + tickLua)
	openScript   = redis.NewScript(openLua)
	forgetScript = redis.NewScript(forgetLua)
	doubtScript  = redis.NewScript(serverLua + settingsLua + witnessLua + doubtLua)
)

// MaxBatch is the most items one guarded batch may hold: Lua's unpack ends below 8,000 arguments,
// and a batch of 1000 holds the server for about a millisecond.
const MaxBatch = 1000

// A Verdict is the guard's decision on a batch.
type Verdict string

// The guard's verdicts. Only DONE has deleted anything.
const (
	Done    Verdict = "DONE"    // deleted and recorded in the audit, now or when it was asked before
	Fenced  Verdict = "FENCED"  // the term is over: the lease is not its own, or a newer term has begun
	Warming Verdict = "WARMING" // the witness has not listened long enough; Answer.Reason says since what
	Alive   Verdict = "ALIVE"   // the owner's heartbeat exists
	Stale   Verdict = "STALE"   // Open only: the audit has met a higher epoch; draw one above it
)

// Lease is what a leader holds while it leads: the lease's token and the epoch of its term.
type Lease struct {
	Token string
	Epoch uint64
}

// BatchID names a batch, and is the id of its audit record. N counts from 1 in a term.
type BatchID struct {
	Epoch, N uint64
}

// String returns the id as it stands in the audit stream: "<epoch>-<n>".
func (id BatchID) String() string {
	return strconv.FormatUint(id.Epoch, 10) + "-" + strconv.FormatUint(id.N, 10)
}

// A Body is the part of a guarded script that judges a batch's items again and deletes them.
type Body struct {
	script *redis.Script
}

// NewBody puts a sweep's own Lua behind the guard. What the body may use and must do stands in
// the header of guard.lua: its keys begin at KEYS[6], its items at ARGV[8]; it calls
// record(deleted, reowned, name, list) once before its first delete, returns at once what that
// returns unless nil, deletes exactly what it recorded and ends with answer('DONE', deleted, reowned).
// Nothing behind record may fail, or the audit would count what is still there: before it the body checks
// types, and by refused(command, key, ...) that the user is allowed each command of the body.
//
// A body judges its items again by what they say themselves: an entry still names the dead owner, a
// job says that it is finished. That something is missing elsewhere, from a hash or a set, is no
// evidence: that hash or set may have been lost with everybody alive. Only the owner's absent
// heartbeat is, and only the guard, in front of the body, reads it as such; see Batch.Owner.
func NewBody(lua string) *Body {
	return &Body{redis.NewScript(serverLua + settingsLua + witnessLua + guardLua + lua)}
}

// EvictEntries evicts entries of the registry: Items are IMEIs, Owner is the dead instance, and
// Keys are what Guard.EntryKeys returns for it.
var EvictEntries = NewBody(evictLua)

// A Batch is one guarded deletion.
type Batch struct {
	ID    BatchID
	Token string // the lease's, of the term that ID.Epoch names
	Sweep string // which kind of sweep asks; goes into the audit
	// Owner is the instance judged dead; with a heartbeat it is ALIVE and the body does not run. "":
	// no owner is judged, and nobody's silence stands behind the delete: what the body finds has to be
	// evidence enough.
	Owner string
	Body  *Body
	Keys  []string // the body's own keys
	Items []string // at most MaxBatch; one that stands there twice is asked for once
}

// An Answer is what the server did with a batch.
type Answer struct {
	Verdict  Verdict
	Deleted  int    // entries that went
	Reowned  int    // candidates that named somebody else, kept
	Reason   string // of WARMING: the doubt; of DONE by EvictEntries: why the index was left alone
	Repeated bool   // the batch had been done before; this is the answer of then
}

// A Guard is the only door through which anything is deleted on behalf of the dead. It holds no
// state: everything that decides stands on the server. Safe for concurrent use, but batches of one
// term must be asked one after the other, in the order of their ids.
type Guard struct {
	client, control redis.UniversalClient
	layout          Layout
	gap, warm       string // ms
	leader          string
}

// NewGuard returns a guard for the leader instance. Batches go through client, ticks and what
// belongs to the term through control. gap and warm are the registry's Gap and Warm.
func NewGuard(client, control redis.UniversalClient, layout Layout, gap, warm time.Duration, leader string) *Guard {
	return &Guard{client: client, control: control, layout: layout, gap: millis(gap), warm: millis(warm), leader: leader}
}

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// EntryKeys are the Keys of a batch whose Body is EvictEntries.
func (g *Guard) EntryKeys(owner string) []string {
	return []string{g.layout.Registry(), g.layout.Devices(owner)}
}

// Open begins a term in the audit. Done: no batch of an older term can delete any more. Stale: the
// audit has met newest, draw a higher epoch and open again. Fenced: the lease is lost. It may be
// asked again after an error.
func (g *Guard) Open(ctx context.Context, l Lease) (v Verdict, newest uint64, err error) {
	keys := []string{g.layout.Audit(), g.layout.Lease()}
	ctx = failpoint.HitPast(ctx, failpoint.Opening)
	out, err := openScript.Run(ctx, g.control, keys, strconv.FormatUint(l.Epoch, 10), l.Token, g.leader).StringSlice()
	if err != nil {
		return "", 0, fmt.Errorf("registry: open term %d: %w", l.Epoch, err)
	}
	if len(out) != 2 {
		return "", 0, fmt.Errorf("registry: open term %d: %d values in the answer", l.Epoch, len(out))
	}
	epoch, _, _ := strings.Cut(out[1], "-")
	newest, _ = strconv.ParseUint(epoch, 10, 64) // empty unless STALE
	return Verdict(out[0]), newest, nil
}

// Do asks for a batch. An error means that its fate is unknown, whatever the error says (a client may
// have retried): ask again with the very same Batch before any other of this term, or, once the
// term is over, ask Fates.
func (g *Guard) Do(ctx context.Context, b Batch) (Answer, error) {
	if len(b.Items) == 0 || len(b.Items) > MaxBatch {
		return Answer{}, fmt.Errorf("registry: batch %s: %d items, want 1 to %d", b.ID, len(b.Items), MaxBatch)
	}
	canary := g.layout.Heartbeat(g.leader)
	owner := canary
	if b.Owner != "" {
		owner = g.layout.Heartbeat(b.Owner)
	}
	keys := append([]string{g.layout.Audit(), g.layout.Lease(), g.layout.Witness(), canary, owner}, b.Keys...)
	args := make([]any, 0, 7+len(b.Items))
	args = append(args, b.ID.String(), b.Token, g.gap, g.warm, g.leader, b.Owner, b.Sweep)
	seen := make(map[string]struct{}, len(b.Items))
	for _, item := range b.Items { // a body that deletes one item twice would count it twice
		if _, again := seen[item]; !again {
			seen[item] = struct{}{}
			args = append(args, item)
		}
	}
	ctx = failpoint.HitPast(ctx, failpoint.BeforeScript)
	out, err := b.Body.script.Run(ctx, g.client, keys, args...).Slice()
	if err != nil {
		return Answer{}, fmt.Errorf("registry: batch %s: %w", b.ID, err)
	}
	return parseAnswer(b.ID, out)
}

func parseAnswer(id BatchID, out []any) (Answer, error) {
	if len(out) == 5 {
		verdict, ok1 := out[0].(string)
		deleted, ok2 := out[1].(int64)
		reowned, ok3 := out[2].(int64)
		reason, ok4 := out[3].(string)
		repeated, ok5 := out[4].(int64)
		if ok1 && ok2 && ok3 && ok4 && ok5 {
			return Answer{Verdict(verdict), int(deleted), int(reowned), reason, repeated == 1}, nil
		}
	}
	return Answer{}, fmt.Errorf("registry: batch %s: unexpected answer %v", id, out)
}

// Forget takes a dead owner off the roster: Done, or Alive while it has a heartbeat or an index.
func (g *Guard) Forget(ctx context.Context, l Lease, owner string) (Verdict, error) {
	keys := []string{g.layout.Lease(), g.layout.Witness(), g.layout.Heartbeat(owner), g.layout.Devices(owner), g.layout.Roster()}
	v, err := forgetScript.Run(ctx, g.control, keys, l.Token, owner).Text()
	if err != nil {
		return "", fmt.Errorf("registry: forget owner: %w", err)
	}
	return Verdict(v), nil
}

// Doubt restarts the witness with reason "mass_failure", unless that was done within notWithin. It
// reports whether it did; a lease that is not this term's is no error and does nothing.
func (g *Guard) Doubt(ctx context.Context, l Lease, notWithin time.Duration) (bool, error) {
	n, err := doubtScript.Run(ctx, g.control, []string{g.layout.Lease(), g.layout.Witness()}, l.Token, millis(notWithin)).Int()
	if err != nil {
		return false, fmt.Errorf("registry: doubt: %w", err)
	}
	return n == 1, nil
}

// Witness is what a tick found: how long Redis has been listened to without a doubt.
type Witness struct {
	Now       time.Time     // the server's
	Since     time.Time     // the server's: no doubt since then
	Listening time.Duration // Now - Since
	WarmIn    time.Duration // until deletes may begin; 0: they may
	Reason    string        // of the last doubt
	LastDoubt time.Time
	Evicted   uint64 // entries evicted, ever: the total beside the audit
	Instances int64  // size of the roster
	ChecksOff []string
}

// Tick listens: every contender does, leading or not, held or paused. It is one small script.
func (g *Guard) Tick(ctx context.Context) (Witness, error) {
	out, err := tickScript.Run(ctx, g.control, []string{g.layout.Witness(), g.layout.Roster()}, g.gap, g.warm).Slice()
	if err != nil {
		return Witness{}, fmt.Errorf("registry: tick: %w", err)
	}
	if len(out) != 9 {
		return Witness{}, fmt.Errorf("registry: tick: unexpected answer %v", out)
	}
	num := func(v any) int64 { n, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64); return n } // "" is 0: never
	w := Witness{
		Now:       time.UnixMilli(num(out[0])),
		Since:     time.UnixMilli(num(out[1])),
		Reason:    fmt.Sprint(out[2]),
		Evicted:   uint64(num(out[5])),
		Instances: num(out[6]),
	}
	if doubted := num(out[3]); doubted > 0 {
		w.LastDoubt = time.UnixMilli(doubted)
	}
	if num(out[4]) == 0 {
		w.ChecksOff = append(w.ChecksOff, "redis_evicting")
	}
	if num(out[8]) == 0 {
		w.ChecksOff = append(w.ChecksOff, "restarted")
	}
	w.Listening = w.Now.Sub(w.Since)
	w.WarmIn = max(0, time.Duration(num(out[7]))*time.Millisecond-w.Listening)
	return w, nil
}
