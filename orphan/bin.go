package orphan

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
)

//go:embed restore.lua
var restoreText string

var restoreScript = redis.NewScript(restoreText)

// Bins are what the rules of one worker have moved aside. They need no rules: an entry says itself
// how it is put back.
type Bins struct {
	Client redis.UniversalClient // the caller's
	Layout guard.Layout          // of the worker's own keys
}

// Binned is one thing in a bin: a key, or a member.
type Binned struct {
	ID      string    `json:"id"` // for Restore
	Rule    string    `json:"rule"`
	Name    string    `json:"name"`             // of the candidate that it went with
	Key     string    `json:"key"`              // as it was called
	Member  string    `json:"member,omitempty"` // of Key
	Removed time.Time `json:"removed,omitzero"`
	Until   time.Time `json:"until,omitzero"` // when the bin drops it
	// Pass is when the pass began that took it, by the server's clock: what went in one pass of a rule
	// has the same.
	Pass time.Time `json:"pass,omitzero"`
}

// Restored is what Restore did with one id.
type Restored struct {
	Binned
	Fate Fate `json:"fate"`
	// Sentence says it in plain words.
	Sentence string `json:"sentence"`
}

// A Fate is what became of an id that was to be restored.
type Fate string

// The fates.
const (
	Back     Fate = "restored" // it is there again
	InUse    Fate = "in_use"   // the name is in use again; it stays in the bin
	Expired  Fate = "expired"  // it would have expired meanwhile; it stays in the bin
	Dropped  Fate = "dropped"  // the bin has dropped it: its time is over
	NoType   Fate = "no_type"  // no older version noted of what type a member's key was; it stays in the bin
	NotThere Fate = "unknown"  // no bin has it: it was restored before, or never was there
)

// binned is an entry of a bin, as delete.lua writes it.
type binned struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Key     string  `json:"key"`
	Member  *string `json:"member,omitempty"`
	By      string  `json:"by,omitempty"` // the command that removed the member: ZREM, SREM, HDEL
	Aside   string  `json:"aside"`
	Expires float64 `json:"expires"` // ms; -1: never
	At      float64 `json:"at"`
	Pass    float64 `json:"pass"`

	text  string
	until float64
	rule  string
}

func (b binned) shown() Binned {
	shown := Binned{
		ID: b.rule + "/" + b.ID, Rule: b.rule, Name: b.Name, Key: b.Key,
		Removed: time.UnixMilli(int64(b.At)), Until: time.UnixMilli(int64(b.until)),
		Pass: time.UnixMilli(int64(b.Pass)),
	}
	if b.Member != nil {
		shown.Member = *b.Member
	}
	return shown
}

// now is the time of the server that has the bins.
func (b Bins) now(ctx context.Context) (time.Time, error) {
	servers, err := masters(ctx, b.Client)
	if err != nil {
		return time.Time{}, err
	}
	home, err := homeOf(servers, b.Layout)
	if err != nil {
		return time.Time{}, err
	}
	return serverTime(ctx, home)
}

// read reads the bin of a rule, or of all rules that ever had a pass (""), the oldest first.
// Entries whose time is over may be among them.
func (b Bins) read(ctx context.Context, rule string) (all []binned, err error) {
	rules := []string{rule}
	if rule == "" {
		passes, err := ReadPasses(ctx, b.Client, b.Layout)
		if err != nil {
			return nil, err
		}
		rules = slices.Sorted(maps.Keys(passes))
	}
	for _, name := range rules {
		found, err := b.Client.ZRangeByScoreWithScores(ctx, binKey(b.Layout, name),
			&redis.ZRangeBy{Min: "-inf", Max: "+inf"}).Result()
		if err != nil {
			return nil, fmt.Errorf("orphan: bin of rule %q: %w", name, err)
		}
		for _, z := range found {
			e := binned{text: z.Member.(string), until: z.Score, rule: name}
			if err := json.Unmarshal([]byte(e.text), &e); err != nil {
				return nil, fmt.Errorf("orphan: bin of rule %q: %w", name, err)
			}
			all = append(all, e)
		}
	}
	slices.SortStableFunc(all, func(a, b binned) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}

// List lists what can be restored, of one rule or of all (""), the oldest first.
func (b Bins) List(ctx context.Context, rule string) ([]Binned, error) {
	at, err := b.now(ctx)
	if err != nil {
		return nil, err
	}
	found, err := b.read(ctx, rule)
	all := []Binned{}
	for _, e := range found {
		if e.until >= float64(at.UnixMilli()) {
			all = append(all, e.shown())
		}
	}
	return all, err
}

// Restore puts back what has these ids, and tells of each what became of it, in the same order. It
// overwrites nothing. A key has its expiry again. An error says that Redis failed: what was
// returned beside it is done. If it could only not take an entry out of its bin, the others are
// done all the same.
func (b Bins) Restore(ctx context.Context, ids ...string) ([]Restored, error) {
	at, err := b.now(ctx)
	if err != nil {
		return nil, err
	}
	byID, asked := map[string]binned{}, map[string]bool{}
	for _, id := range ids {
		// Passes may be lost, and with them which rules there are: an id names its own.
		rule := id[:max(0, strings.LastIndexByte(id, '/'))]
		if rule == "" || asked[rule] {
			continue
		}
		asked[rule] = true
		found, err := b.read(ctx, rule)
		if err != nil {
			return nil, err
		}
		for _, e := range found {
			byID[rule+"/"+e.ID] = e
		}
	}
	all := make([]Restored, 0, len(ids))
	var stays error
	for _, id := range ids {
		e, has := byID[id]
		if !has {
			all = append(all, Restored{Binned{ID: id}, NotThere,
				"no bin has it: it was restored before, its time is over, or it never was there"})
			continue
		}
		delete(byID, id) // asked for twice, it is there once
		r, err := b.restore(ctx, e, at)
		if err != nil {
			return all, cmp.Or(stays, fmt.Errorf("orphan: restore %s: %w", id, err))
		}
		all = append(all, r)
		if r.Fate == Back || r.Fate == Dropped {
			// If this fails the entry says for a while what is there no more; nothing depends on it.
			if err := b.Client.ZRem(ctx, binKey(b.Layout, e.rule), e.text).Err(); err != nil && stays == nil {
				stays = fmt.Errorf("orphan: the entry of %s stays in its bin: %w", id, err)
			}
		}
	}
	return all, stays
}

func (b Bins) restore(ctx context.Context, e binned, at time.Time) (Restored, error) {
	member := ""
	if e.Member != nil {
		member = *e.Member
	}
	if e.Member != nil && e.By == "" {
		return Restored{Binned: e.shown(), Fate: NoType,
			Sentence: "its entry does not say of what type " + e.Key + " was; what it had of it is in " +
				e.Aside}, nil
	}
	said, err := restoreScript.Run(ctx, b.Client, []string{e.Aside, e.Key}, e.By, member,
		int64(e.Expires)).Text()
	if err != nil {
		return Restored{}, err
	}
	r := Restored{Binned: e.shown()}
	moment := func(ms float64) string { return time.UnixMilli(int64(ms)).UTC().Format(time.RFC3339) }
	switch said {
	case "restored":
		r.Fate, r.Sentence = Back, e.Key+" is there again"
	case "taken":
		r.Fate = InUse
		r.Sentence = e.Key + " is in use again, and was not overwritten; move that away first, and restore it until " +
			moment(e.until)
	case "expired":
		r.Fate, r.Sentence = Expired, fmt.Sprintf("%s would have expired at %s", e.Key, moment(e.Expires))
	default:
		r.Fate, r.Sentence = Dropped, "the bin has dropped it: its time was over at "+moment(e.until)
		if e.until > float64(at.UnixMilli()) {
			r.Sentence = "the bin has lost it: " + e.Aside + " is not there"
		}
	}
	return r, nil
}
