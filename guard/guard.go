package guard

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

//go:embed *.lua
var files embed.FS

// lua returns Lua files, one behind the other.
func lua(names ...string) (text string) {
	for _, name := range names {
		file, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err) // cannot be: it is embedded
		}
		text += string(file)
	}
	return text
}

// SettingsLua precedes a script by which an owner beats. It defines tell_grace, by which the owner
// reports its grace period and its boot to the witness; see settings.lua.
var SettingsLua = lua("settings")

// ListenLua comes before a script by which an owner listens as the guard does. It defines
// listen(key, gap, grace) and hold(key, now, reason); see witness.lua.
var ListenLua = lua("server", "settings", "witness")

var (
	tickScript   = redis.NewScript(ListenLua + lua("tick"))
	holdScript   = redis.NewScript(ListenLua + lua("hold"))
	openScript   = redis.NewScript(lua("open"))
	forgetScript = redis.NewScript(lua("forget"))
	cpuScript    = redis.NewScript(lua("server", "cpu"))
)

// MaxBatch is the most items one guarded batch may hold: Lua's unpack ends below 8,000 arguments,
// and a batch of 1000 holds the server for some two milliseconds.
const MaxBatch = 1000

// A Verdict is the guard's decision on a batch.
type Verdict string

// The guard's verdicts. Only DONE has deleted anything.
const (
	Done   Verdict = "DONE"   // deleted and recorded in the log, now or when it was asked before
	Fenced Verdict = "FENCED" // the term is over: the lease is not its own, or a newer term has begun
	// the witness has not listened long enough; Answer.Reason says since what
	Held  Verdict = "HELD"
	Alive Verdict = "ALIVE" // the owner's heartbeat exists
	Stale Verdict = "STALE" // Open only: the log has a higher epoch; draw one above it
	// Open only: done, in a new log. The old one took no records and was renamed to Layout.LogAside.
	Aside Verdict = "ASIDE"
	// Forget only: this user may not UNLINK what the owner left
	Refused Verdict = "REFUSED"
)

// Lease is what a leader holds while it leads: the lease's token and the epoch of its term.
type Lease struct {
	Token string
	Epoch uint64
}

// BatchID names a batch, and is the id of its log record. N counts from 1 in a term.
type BatchID struct {
	Epoch, N uint64
}

// String returns the id as it stands in the eviction log: "<epoch>-<n>".
func (id BatchID) String() string {
	return fmt.Sprintf("%d-%d", id.Epoch, id.N)
}

// A Batch is one guarded deletion.
type Batch struct {
	ID    BatchID
	Token string // the lease's, of the term that ID.Epoch names
	Sweep string // which kind of sweep asks; goes into the log
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
	Reason   string // of HELD: the reason of the hold; of DONE: what the body says of itself
	Repeated bool   // the batch had been done before; this is the answer of then
}

// A Guard is the only way in which anything is deleted on behalf of the dead. It holds no
// state: everything that decides stands on the server. Safe for concurrent use, but batches of one
// term must be asked one after the other, in the order of their ids.
type Guard struct {
	client, control redis.UniversalClient
	layout          Layout
	gap, grace      int64 // ms
	leader          string
}

// New returns a guard for the leader instance. Batches go through client, ticks and what belongs to
// the term through control. It does not talk to Redis.
func New(client, control redis.UniversalClient, layout Layout, t Timing, leader string) *Guard {
	return &Guard{
		client: client, control: control, layout: layout,
		gap: t.Gap().Milliseconds(), grace: t.Grace().Milliseconds(), leader: leader,
	}
}

// Open begins a term in the log. Done and Aside: no batch of an older term can delete any more.
// Stale: the log has newest, draw a higher epoch and open again. Fenced: the lease is lost. It may
// be asked again after an error.
func (g *Guard) Open(ctx context.Context, l Lease) (v Verdict, newest uint64, err error) {
	keys := []string{g.layout.Log(), g.layout.Lease(), g.layout.LogAside(l.Epoch)}
	ctx = failpoint.HitPast(ctx, failpoint.Opening)
	out, err := openScript.Run(ctx, g.control, keys, l.Epoch, l.Token, g.leader).StringSlice()
	if err == nil && len(out) != 2 {
		err = fmt.Errorf("%d values in the answer", len(out))
	}
	if err != nil {
		return "", 0, fmt.Errorf("guard: open term %d: %w", l.Epoch, err)
	}
	epoch, _, _ := strings.Cut(out[1], "-")
	newest, _ = strconv.ParseUint(epoch, 10, 64) // 0 unless STALE
	return Verdict(out[0]), newest, nil
}

// Do asks for a batch. An error means that its fate is unknown, whatever the error says (a client
// may have retried): ask again with the very same Batch before any other of this term, or, once the
// term is over, ask Fates.
func (g *Guard) Do(ctx context.Context, b Batch) (Answer, error) {
	if len(b.Items) == 0 || len(b.Items) > MaxBatch {
		return Answer{}, fmt.Errorf("guard: batch %s: %d items, want 1 to %d", b.ID, len(b.Items), MaxBatch)
	}
	own := g.layout.Heartbeat(g.leader)
	owner := g.layout.Heartbeat(cmp.Or(b.Owner, g.leader))
	keys := append([]string{g.layout.Log(), g.layout.Lease(), g.layout.Witness(), own, owner}, b.Keys...)
	args := make([]any, 0, 7+len(b.Items))
	args = append(args, b.ID.String(), b.Token, g.gap, g.grace, g.leader, b.Owner, b.Sweep)
	seen := make(map[string]bool, len(b.Items))
	for _, item := range b.Items { // a body that deletes one item twice would count it twice
		if !seen[item] {
			seen[item] = true
			args = append(args, item)
		}
	}
	ctx = failpoint.HitPast(ctx, failpoint.BeforeScript)
	out, err := b.Body.script.Run(ctx, g.client, keys, args...).Slice()
	if err != nil {
		return Answer{}, fmt.Errorf("guard: batch %s: %w", b.ID, err)
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
		if ok1 && ok2 && ok3 && ok4 && ok5 && deleted >= 0 && reowned >= 0 {
			return Answer{Verdict(verdict), int(deleted), int(reowned), reason, repeated == 1}, nil
		}
	}
	return Answer{}, fmt.Errorf("guard: batch %s: unexpected answer %v", id, out)
}

// Forget removes a dead owner from the roster and the contenders, with the sets that list its
// entries. The caller has swept that number of members. It returns Done; Alive if the owner has a
// heartbeat, or a set has more members; Refused if the sets are not empty and this user may not
// UNLINK them.
func (g *Guard) Forget(
	ctx context.Context, l Lease, owner string, swept int, sets ...string,
) (Verdict, error) {
	of := g.layout
	keys := append([]string{
		of.Lease(), of.Witness(), of.Roster(), of.Heartbeat(owner), of.Contenders(),
	}, sets...)
	v, err := forgetScript.Run(ctx, g.control, keys, l.Token, owner, swept).Text()
	if err != nil {
		return "", fmt.Errorf("guard: forget owner: %w", err)
	}
	return Verdict(v), nil
}

// Hold restarts the witness with reason "mass_failure", unless that was done within notWithin. It
// reports whether it did; a lease that is not this term's is no error and does nothing.
func (g *Guard) Hold(ctx context.Context, l Lease, notWithin time.Duration) (bool, error) {
	keys := []string{g.layout.Lease(), g.layout.Witness()}
	n, err := holdScript.Run(ctx, g.control, keys, l.Token, notWithin.Milliseconds()).Int()
	if err != nil {
		return false, fmt.Errorf("guard: hold: %w", err)
	}
	return n == 1, nil
}

// CPU is how much processor time the server that has the registry has used in its life. An error
// also where it does not say.
func (g *Guard) CPU(ctx context.Context) (used time.Duration, err error) {
	out, err := cpuScript.RunRO(ctx, g.control, []string{g.layout.Witness()}).StringSlice()
	for _, text := range out {
		seconds, wrong := strconv.ParseFloat(text, 64)
		err = cmp.Or(err, wrong)
		used += time.Duration(seconds * float64(time.Second))
	}
	if err != nil {
		return 0, fmt.Errorf("guard: processor time of Redis: %w", err)
	}
	return used, nil
}
