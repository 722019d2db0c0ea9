package guard

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

//go:embed *.lua
var files embed.FS

func lua(names ...string) (text string) {
	for _, name := range names {
		file, err := files.ReadFile(name + ".lua")
		if err != nil {
			panic(err)
		}
		text += string(file)
	}
	return text
}

// SettingsLua precedes scripts that send a heartbeat; see settings.lua.
var SettingsLua = lua("settings")

// FormerLua precedes scripts that must not run on a former primary; see former.lua.
var FormerLua = lua("former")

// listenLua precedes scripts that listen; see witness.lua.
var listenLua = lua("server", "settings", "witness")

var (
	tickScript    = redis.NewScript(listenLua + lua("tick"))
	openScript    = redis.NewScript(lua("open"))
	forgetScript  = redis.NewScript(lua("forget"))
	readingScript = redis.NewScript(lua("server", "settings", "former", "reading"))
	recordsScript = redis.NewScript(lua("records"))
	trimScript    = redis.NewScript(lua("trim"))
	cpuScript     = redis.NewScript(lua("server", "cpu"))
)

// MaxBatch is the largest batch. Lua's unpack fails just below 8,000 arguments, and a batch of 1000
// occupies the server for about two milliseconds.
const MaxBatch = 1000

// A Verdict is the guard's decision on a batch.
type Verdict string

// Only DONE means that something was deleted.
const (
	Done   Verdict = "DONE"   // deleted and recorded in the log, now or by an earlier attempt
	Fenced Verdict = "FENCED" // the term is over: the lease was lost, or a newer term has begun
	Held   Verdict = "HELD"   // not observed for long enough; Answer.Reason is the last hold's
	Alive  Verdict = "ALIVE"  // the owner has a heartbeat, or a record that is fresh
	Wait   Verdict = "WAIT"   // the owner is silent, which proves nothing yet: Answer.Reason
	Stale  Verdict = "STALE"  // Open only: the log has a higher epoch; draw one above it
	// Open only: opened in a new log; the old one is now Layout.LogAside
	Aside   Verdict = "ASIDE"
	Refused Verdict = "REFUSED" // Forget only: this user may not UNLINK the owner's sets
)

// Lease is a leader's lease token and the epoch of its term.
type Lease struct {
	Token string
	Epoch uint64
}

// BatchID identifies a batch and is the id of its log record. N counts from 1 in each term.
type BatchID struct {
	Epoch, N uint64
}

func (id BatchID) String() string {
	return fmt.Sprintf("%d-%d", id.Epoch, id.N)
}

// A Batch is one guarded deletion.
type Batch struct {
	ID    BatchID
	Token string // of the term ID.Epoch
	Sweep string // the kind of sweep, for the log
	// Owner is the instance judged dead. "" judges nobody; the body must then find its own
	// evidence.
	Owner string
	Body  *Body
	Keys  []string
	Items []string // at most MaxBatch; duplicates are sent once
	Evidence
}

// Evidence is what a leader knows when it sends a batch.
type Evidence struct {
	Newest int64  // ms of the leader's own newest heartbeat, as far as it knows; 0: unknown
	Record string // the owner's record; "": there is none
	ReadAt int64  // when the records were read, ms of the server's clock
}

// An Answer is the answer to a batch.
type Answer struct {
	Verdict  Verdict
	Deleted  int
	Reowned  int    // candidates kept because they named somebody else
	Reason   string // HELD: of the hold; WAIT: the doubt; DONE: the body's note
	Repeated bool   // the batch ran before, and this is its first answer
}

// A Guard is the only way to delete on behalf of the dead. It holds no state: every decision rests
// on data on the server. It is safe for concurrent use, but a term's batches must be sent one at a
// time, in the order of their ids.
type Guard struct {
	client, control redis.UniversalClient
	layout          Layout
	gap, grace      int64 // ms
	leader          string
}

// New returns a guard for the instance leader. Only batches go through client.
func New(client, control redis.UniversalClient, layout Layout, t Timing, leader string) *Guard {
	return &Guard{
		client: client, control: control, layout: layout,
		gap: t.Gap().Milliseconds(), grace: t.Grace().Milliseconds(), leader: leader,
	}
}

// Open begins a term in the log. After Done or Aside no batch of an older term can delete. Stale:
// the log already has the epoch newest; draw a higher one and open again. After an error Open may
// be called again.
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

// Do runs a batch. After any error its fate is unknown (a client may have retried): send the very
// same Batch again before any other of this term or, once the term is over, call Fate.
func (g *Guard) Do(ctx context.Context, b Batch) (Answer, error) {
	if len(b.Items) == 0 || len(b.Items) > MaxBatch {
		return Answer{}, fmt.Errorf("guard: batch %s: %d items, want 1 to %d", b.ID, len(b.Items), MaxBatch)
	}
	own := g.layout.Heartbeat(g.leader)
	owner := g.layout.Heartbeat(cmp.Or(b.Owner, g.leader))
	keys := append([]string{g.layout.Log(), g.layout.Lease(), g.layout.Witness(), own, owner}, b.Keys...)
	keys = append(keys, g.layout.Beats())
	args := make([]any, 0, 10+len(b.Items))
	args = append(args, b.ID.String(), b.Token, g.gap, g.grace, g.leader, b.Owner, b.Sweep)
	seen := make(map[string]bool, len(b.Items))
	for _, item := range b.Items { // a body would count a duplicate twice
		if !seen[item] {
			seen[item] = true
			args = append(args, item)
		}
	}
	args = append(args, b.Newest, b.Record, b.ReadAt)
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

// Forget removes a dead owner from the roster and the contenders, and deletes the sets that list
// its entries. It returns Done; Alive if the owner has a heartbeat or a set has more than swept
// members; Refused if this user may not UNLINK the sets.
func (g *Guard) Forget(
	ctx context.Context, l Lease, owner string, swept int, sets ...string,
) (Verdict, error) {
	of := g.layout
	keys := append([]string{
		of.Lease(), of.Roster(), of.Heartbeat(owner), of.Contenders(),
	}, sets...)
	v, err := forgetScript.Run(ctx, g.control, keys, l.Token, owner, swept).Text()
	if err != nil {
		return "", fmt.Errorf("guard: forget owner: %w", err)
	}
	return Verdict(v), nil
}

// Trim keeps the newest records of the log that take most bytes, whole nodes, and at least least of
// them; so many records where this user may not read the size. It returns whether it could read the
// size, and trim.
func (g *Guard) Trim(ctx context.Context, most, least, records int64) (sized, trimmed bool, err error) {
	out, err := trimScript.Run(ctx, g.client, []string{g.layout.Log()}, most, least, records).Int64Slice()
	if err == nil && len(out) != 2 {
		err = fmt.Errorf("%d values in the answer", len(out))
	}
	if err != nil {
		return false, false, fmt.Errorf("guard: trim the log: %w", err)
	}
	return out[0] == 1, out[1] == 1, nil
}

// CPU returns the processor time used by the registry's server.
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

// A Fate is what became of a batch.
type Fate struct {
	Answer
	// Settled reports that Answer is final: Done, or Fenced if the batch never ran. Otherwise the
	// lease still holds the batch's token, and the batch may yet land.
	Settled bool
	// Trimmed reports that the log has lost the outcome: nothing is left of the batch's term, not
	// even its opening record.
	Trimmed bool
}

// Fate looks a batch up by ID and Token.
func (g *Guard) Fate(ctx context.Context, b Batch) (Fate, error) {
	// One transaction reads the lease and the log at the same instant. With separate reads a batch
	// could land after the log was read, and the lease expire before it is.
	pipe := g.control.TxPipeline()
	lease := pipe.Get(ctx, g.layout.Lease())
	// The newest record of the term up to this batch: its own, or an earlier one, which shows that
	// its own was not trimmed.
	opened := BatchID{Epoch: b.ID.Epoch}.String()
	found := pipe.XRevRangeN(ctx, g.layout.Log(), b.ID.String(), opened, 1)
	_, err := pipe.Exec(ctx)
	if errors.Is(err, redis.Nil) { // no lease, which hides a later error
		err = found.Err()
	}
	if err != nil {
		return Fate{}, fmt.Errorf("guard: fate of batch %s: %w", b.ID, err)
	}
	records := found.Val()
	if len(records) == 0 || records[0].ID != b.ID.String() {
		return Fate{
			Answer: Answer{Verdict: Fenced}, Settled: lease.Val() != b.Token, Trimmed: len(records) == 0,
		}, nil
	}
	a, err := recorded(records[0].Values)
	if err != nil {
		return Fate{}, fmt.Errorf("guard: fate of batch %s: log record: %w", b.ID, err)
	}
	return Fate{Answer: a, Settled: true}, nil
}

func recorded(values map[string]any) (Answer, error) {
	deleted, err1 := strconv.Atoi(fmt.Sprint(values["count"]))
	reowned, err2 := strconv.Atoi(fmt.Sprint(values["reowned"]))
	err := errors.Join(err1, err2)
	if err == nil && (deleted < 0 || reowned < 0 || deleted > 1_000_000) {
		err = errors.New("no batch has so many")
	}
	note, _ := values["note"].(string)
	return Answer{Done, deleted, reowned, note, true}, err
}
