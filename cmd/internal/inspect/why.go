package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/orphan"
)

// Found is the location of a device.
type Found struct {
	ID        string    `json:"id"`
	Owner     string    `json:"owner"`
	Alive     bool      `json:"alive"`
	Since     time.Time `json:"since,omitzero"`
	LastBeat  time.Time `json:"last_beat,omitzero"`
	Partition *int      `json:"partition,omitempty"`
	Fault     *Fault    `json:"fault,omitempty"`
	Sentence  string    `json:"sentence"`
}

// partOf returns the partition of an id, and the status as far as it is about that.
func (r *Reader) partOf(ctx context.Context, s Status, id string) (*Reader, Status, error) {
	parts, err := r.parts(ctx)
	if err != nil {
		return nil, s, err
	}
	k := guard.PartitionOf(id, len(parts))
	if s.lacks(k) {
		return nil, s, &unreadError{s.Unread, fmt.Sprintf("%s is of partition %d, which cannot be read: ", id, k)}
	}
	s.parts = slices.DeleteFunc(slices.Clone(s.glances()), func(g glance) bool { return g.number != k })
	if len(s.parts) == 0 { // the fleet was divided meanwhile
		return nil, s, fmt.Errorf("inspect: the fleet has %d partitions now: ask again", len(parts))
	}
	s.Hold = s.parts[0].hold
	return parts[k], s, nil
}

// Find returns a device's owner, and whether it lives, in a fleet of this status.
func (r *Reader) Find(ctx context.Context, s Status, imei string) (Found, error) {
	r, s, err := r.partOf(ctx, s, imei)
	if err != nil {
		return Found{}, err
	}
	f, there, err := r.find(ctx, imei)
	if err != nil {
		return f, err
	}
	var unknown string
	if f.Fault, unknown, err = r.fault(ctx, imei); err != nil {
		return f, err
	}
	switch {
	case f.Owner == "" && there:
		f.Sentence = "nobody holds " + imei + ": its entry is empty"
	case f.Owner == "":
		f.Sentence = "nobody holds " + imei + s.refusing()
	case f.Alive:
		f.Sentence = fmt.Sprintf("%s holds %s; it %s", f.Owner, imei, lives(f, s.Now))
	default:
		f.Sentence = fmt.Sprintf("the entry of %[2]s names %[1]s, which has no heartbeat: it is dead or cut off",
			f.Owner, imei)
	}
	f.Sentence += unknown
	return f, nil
}

// refusing ends a sentence about a device without an entry.
func (s *Status) refusing() string {
	means, _ := Cause(s.refused())
	if means == "" {
		return ""
	}
	return "; " + means + ", so registrations are refused: a device without an entry may be connected all the same"
}

// lacks reports whether a partition cannot be read.
func (s *Status) lacks(k int) bool {
	return slices.ContainsFunc(s.Unread, func(u unreadServer) bool { return slices.Contains(u.Partitions, k) })
}

func (r *Reader) find(ctx context.Context, imei string) (f Found, there bool, err error) {
	f = Found{ID: imei}
	if r.single {
		f.Partition = &r.number
	}
	owner, err := r.client.HGet(ctx, r.keys.Registry(), imei).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return f, false, fmt.Errorf("inspect: read the entry: %w", err)
	}
	if there = err == nil; owner == "" {
		return f, there, nil
	}
	f.Owner = owner
	beats, err := r.heartbeats(ctx, []string{owner})
	h := beats[owner]
	f.Alive, f.Since, f.LastBeat = h.Alive, h.Boot, h.Beat
	return f, there, err
}

func lives(f Found, now time.Time) string {
	text := "lives: its heartbeat exists"
	if !f.LastBeat.IsZero() {
		text = "beat " + Ago(now.Sub(f.LastBeat))
	}
	if !f.Since.IsZero() {
		text += ", and has run for " + Short(now.Sub(f.Since))
	}
	return text
}

// Verdict is an entry's fate.
type Verdict string

// The verdicts.
const (
	Kept    Verdict = "kept"    // nothing suggests that it will be deleted
	Evicted Verdict = "evicted" // see the newest record
	WillGo  Verdict = "will_go" // its owner is silent, and a sweep will delete it
	Unknown Verdict = "unknown" // no entry, and no record explains that
)

// Why explains an entry or key.
type Why struct {
	ID        string         `json:"id"`
	Verdict   Verdict        `json:"verdict"`
	Owner     string         `json:"owner"`
	Alive     bool           `json:"alive"`
	Sentence  string         `json:"sentence"`
	Hold      *Hold          `json:"hold"`
	Partition *int           `json:"partition,omitempty"`
	Records   []Record       `json:"records"`
	Marks     []orphan.Mark  `json:"marks,omitempty"`
	Bin       *orphan.Binned `json:"bin,omitempty"`
	Unread    []unreadServer `json:"unread,omitempty"`
}

// Why explains why a device's entry, or a key that a rule sweeps, exists or not, in a fleet of this
// status. It reads what it has not read yet of its partition's eviction log. If a server of a Redis
// Cluster does not answer, the error is [Partial] if the entry would be there, and nil otherwise.
func (r *Reader) Why(ctx context.Context, s Status, id string) (Why, error) {
	w := Why{ID: id, Records: []Record{}, Unread: s.Unread}
	part, s, err := r.partOf(ctx, s, id)
	if err != nil {
		return w, err
	}
	w.Hold = s.Hold
	found, there, err := part.find(ctx, id)
	if err != nil {
		return w, err
	}
	w.Owner, w.Alive, w.Partition = found.Owner, found.Alive, found.Partition
	var oldest time.Time
	if w.Records, oldest, err = part.history.of(ctx, part, id, s.Now); err != nil {
		return w, err
	}
	if divided := r.divided.Load(); part.number > 0 && !isDevice(id) && !s.lacks(0) {
		first := (*divided)[0] // sweeps all other keys
		more, _, err := first.history.of(ctx, first, id, s.Now)
		if err != nil {
			return w, err
		}
		w.Records = append(w.Records, more...)
		slices.SortStableFunc(w.Records, func(a, b Record) int { return b.At.Compare(a.At) })
	}
	switch stopped := s.Stopped(); {
	case found.Owner != "" && found.Alive:
		w.Verdict, w.Sentence = Kept, fmt.Sprintf("kept: its owner %s %s", found.Owner, lives(found, s.Now))
	case found.Owner != "":
		w.Verdict, w.Sentence, err = part.dying(ctx, found, stopped)
	case there:
		w.Verdict, w.Sentence = Kept, "kept: its entry is empty, so nothing can judge it; delete it: HDEL "+
			part.keys.Registry()+" "+id
	case !isDevice(id):
		w.Verdict, w.Sentence, err = r.whyKey(ctx, &w, stopped, s.Now)
	}
	if err != nil || w.Verdict != "" {
		return w, err
	}
	if len(w.Records) == 0 {
		w.Verdict = Unknown
		w.Sentence = "not there, and no record of the eviction log names it; " + reach(oldest, s.Now) +
			"; its owner took it out (its socket closed), or it was never there, or Redis lost it: then its " +
			"owner puts it back within one HEARTBEAT_INTERVAL" + s.refusing()
		return w, nil
	}
	w.Verdict, w.Owner = Evicted, w.Records[0].Owner
	beats, err := part.heartbeats(ctx, []string{w.Owner})
	w.Alive = beats[w.Owner].Alive
	w.Sentence = evicted(w.Records[0], beats[w.Owner], s.Now) + binned(w.Bin, s.Now)
	return w, err
}

func reach(oldest, now time.Time) string {
	if oldest.IsZero() {
		return "the log is empty"
	}
	return "the log goes back to " + Ago(now.Sub(oldest))
}

// After reconnected the device may have come back and left again, without a trace in the log.
const reconnected = time.Minute

func evicted(rec Record, owner beating, now time.Time) string {
	text := fmt.Sprintf("evicted %s at %s by %s in term %d", Ago(now.Sub(rec.At)),
		rec.At.UTC().Format("2006-01-02 15:04:05Z"), rec.Leader, rec.Epoch)
	if rec.Owner == "" {
		return fmt.Sprintf("%s: the rule %s found it an orphan", text, rec.Sweep)
	}
	text += fmt.Sprintf(": %s had no heartbeat", rec.Owner)
	if now.Sub(rec.At) > reconnected {
		text += "; if the device has come back since, whoever held it then took it out (its socket closed)"
	}
	if owner.Alive {
		text += "; it has come back since"
		if owner.Boot.After(rec.At) {
			text += fmt.Sprintf(", as a new process, %s", Ago(now.Sub(owner.Boot)))
		}
	}
	return text
}

// The leader checks indexed entries once a second.
const quickly = 2 * time.Second

func (r *Reader) dying(ctx context.Context, f Found, stopped *Finding) (Verdict, string, error) {
	p := r.client.Pipeline()
	onRoster := p.SMIsMember(ctx, r.keys.Roster(), f.Owner)
	indexed := p.SMIsMember(ctx, r.keys.Devices(f.Owner), f.ID)
	if err := exec(ctx, p, "roster and index"); err != nil {
		return "", "", err
	}
	silent := f.Owner + " has no heartbeat"
	unless := "unless " + f.Owner + " beats"
	switch {
	case stopped != nil:
		verdict, sentence := stopped.fate(silent, unless)
		return verdict, sentence, nil
	case is(onRoster) && is(indexed):
		return WillGo, fmt.Sprintf("will go within %s %s: %s", Short(quickly), unless, silent), nil
	}
	return WillGo, fmt.Sprintf("will go by the next full scan (JANITOR_INTERVAL, 60s by default) %s: %s, "+
		"and its index does not have the entry", unless, silent), nil
}

// fate is that of what is condemned while nothing is swept.
func (f *Finding) fate(because, unless string) (Verdict, string) {
	name, _, _ := strings.Cut(f.Name, ":")
	if name == "leader" || name == "dry_run" || name == "passes" {
		return Kept, fmt.Sprintf("kept: %s. But nothing is swept: %s", because, f.Text())
	}
	return WillGo, fmt.Sprintf("will go once sweeping goes on, %s: %s. Now nothing is swept: %s", unless, because, f.Text())
}

const faultsKey = "telemetry:teltonika:faults"

// longestFault exceeds what gateways store.
const longestFault = 4096

// Fault is what a device last sent wrong.
type Fault struct {
	At    time.Time `json:"at"`
	Kind  string    `json:"kind"`
	Error string    `json:"error"`
	Bytes string    `json:"bytes"` // hex of the frame's beginning
	Peer  string    `json:"peer"`
}

// unknown ends a sentence if the key is on a server of a Redis Cluster that does not answer.
func (r *Reader) fault(ctx context.Context, imei string) (f *Fault, unknown string, err error) {
	within, cancel := briefly(ctx, r.single)
	defer cancel()
	text, err := r.client.HGet(within, faultsKey, imei).Bytes()
	var refused redis.Error // redis.Nil is one too
	switch {
	case errors.As(err, &refused):
		return nil, "", nil
	case err != nil && r.single && ctx.Err() == nil:
		return nil, "; what it last sent wrong is unknown: " + faultsKey + " cannot be read (" + cause(err) + ")",
			nil
	case err != nil:
		return nil, "", fmt.Errorf("inspect: read the fault: %w", err)
	}
	var stored struct {
		Fault
		At int64 `json:"at"`
	}
	if len(text) > longestFault || json.Unmarshal(text, &stored) != nil {
		return nil, "", nil
	}
	stored.Fault.At = time.UnixMilli(stored.At)
	return &stored.Fault, "", nil
}
