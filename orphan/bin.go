package orphan

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

//go:embed restore.lua
var restoreText string

//go:embed drop.lua
var dropText string

var (
	restoreScript = redis.NewScript(restoreText)
	dropScript    = redis.NewScript(dropText)
)

// Bins reads and restores what the rules of one worker moved aside. It needs no rules.
type Bins struct {
	Client redis.UniversalClient // the caller's
	Layout guard.Layout          // of the worker's own keys
}

// Binned is a key or member in a bin.
type Binned struct {
	ID      string    `json:"id"` // for Restore
	Rule    string    `json:"rule"`
	Name    string    `json:"name"` // candidate that it was removed with
	Key     string    `json:"key"`
	Member  string    `json:"member,omitempty"` // of Key
	Removed time.Time `json:"removed,omitzero"`
	Until   time.Time `json:"until,omitzero"` // when the bin drops it
	// Pass is when the removing pass began, by the server's clock.
	Pass time.Time `json:"pass,omitzero"`
}

// Restored is the outcome of Restore for one id.
type Restored struct {
	Binned
	Fate     Fate   `json:"fate"`
	Sentence string `json:"sentence"`
}

// A Fate is the outcome of restoring one id.
type Fate string

// The fates.
const (
	Back     Fate = "restored"
	InUse    Fate = "in_use"  // the name is in use; the entry stays in the bin
	Expired  Fate = "expired" // it would have expired by now; the entry stays in the bin
	Dropped  Fate = "dropped" // its time in the bin is over
	NoType   Fate = "no_type" // an older version did not record the key's type; the entry stays in the bin
	NotThere Fate = "unknown" // in no bin: restored before, or never existed
)

type binned struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Key     raw     `json:"key"`
	Member  *raw    `json:"member,omitempty"`
	By      string  `json:"by,omitempty"` // ZREM, SREM, HDEL
	Aside   raw     `json:"aside"`
	Expires float64 `json:"expires"` // ms; -1: never
	At      float64 `json:"at"`
	Pass    float64 `json:"pass"`
	Until   float64 `json:"until,omitempty"`

	rule string
	old  string
}

func (b binned) shown() Binned {
	shown := Binned{
		ID: b.rule + "/" + b.ID, Rule: b.rule, Name: b.Name, Key: rules.Spell(string(b.Key)),
		Removed: time.UnixMilli(int64(b.At)), Until: time.UnixMilli(int64(b.Until)),
		Pass: time.UnixMilli(int64(b.Pass)),
	}
	if b.Member != nil {
		shown.Member = rules.Spell(string(*b.Member))
	}
	return shown
}

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

const pageOfBin = 500

// rules returns the given rule, or for "" every rule that ever had a pass.
func (b Bins) rules(ctx context.Context, rule string) ([]string, error) {
	if rule != "" {
		return []string{rule}, nil
	}
	passes, err := ReadPasses(ctx, b.Client, b.Layout)
	return sorted(passes), err
}

// All iterates over everything that can be restored, of one rule or of all (""), unordered. An
// entry may appear twice. An error ends the iteration; the last one names unreadable entries.
func (b Bins) All(ctx context.Context, rule string) iter.Seq2[Binned, error] {
	return func(yield func(Binned, error) bool) {
		at, err := b.now(ctx)
		if err == nil {
			err = b.each(ctx, rule, func(e binned) bool {
				return e.Until < float64(at.UnixMilli()) || yield(e.shown(), nil)
			})
		}
		if err != nil {
			yield(Binned{}, err)
		}
	}
}

func (b Bins) each(ctx context.Context, rule string, more func(binned) bool) error {
	rules, err := b.rules(ctx, rule)
	if err != nil {
		return err
	}
	var unread error
	for _, name := range rules {
		for _, bin := range []struct {
			key  string
			scan func(ctx context.Context, key string, cursor uint64, match string, count int64) *redis.ScanCmd
			read func(first, second string) (binned, error)
		}{
			{binnedKey(b.Layout, name), b.Client.HScan, func(_, text string) (binned, error) { return readEntry(name, text) }},
			{oldBinKey(b.Layout, name), b.Client.ZScan, func(text, until string) (binned, error) { return readOld(name, text, until) }},
		} {
			for cursor, first := uint64(0), true; first || cursor != 0; first = false {
				var page []string
				if page, cursor, err = bin.scan(ctx, bin.key, cursor, "", pageOfBin).Result(); err != nil {
					return fmt.Errorf("orphan: bin of rule %q: %w", name, err)
				}
				for i := 0; i+1 < len(page); i += 2 {
					e, err := bin.read(page[i], page[i+1])
					if err != nil {
						unread = cmp.Or(unread, fmt.Errorf("%s: entry %.200q: %w", bin.key, page[i], err))
						continue
					}
					if !more(e) {
						return nil
					}
				}
			}
		}
	}
	return unread
}

func readEntry(rule, text string) (e binned, err error) {
	e.rule = rule
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return e, fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
	}
	return e, nil
}

func readOld(rule, text, until string) (e binned, err error) {
	if e, err = readEntry(rule, text); err != nil {
		return e, err
	}
	e.old = text
	if e.Until, err = strconv.ParseFloat(until, 64); err != nil {
		return e, fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
	}
	return e, nil
}

// List is All, oldest first. With an error it returns the readable entries.
func (b Bins) List(ctx context.Context, rule string) ([]Binned, error) {
	all, met := []Binned{}, map[string]bool{}
	var failed error
	for one, err := range b.All(ctx, rule) {
		if err != nil {
			failed = err
			break
		}
		if !met[one.ID] {
			met[one.ID] = true
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Binned) int {
		return cmp.Or(a.Removed.Compare(b.Removed), cmp.Compare(a.ID, b.ID))
	})
	return all, failed
}

func (b Bins) find(ctx context.Context, ids []string) (map[string]binned, error) {
	byRule := map[string][]string{}
	for _, id := range ids {
		// The list of rules may be lost with the passes, so take the rule from the id.
		if i := strings.LastIndexByte(id, '/'); i > 0 {
			byRule[id[:i]] = append(byRule[id[:i]], id[i+1:])
		}
	}
	found := map[string]binned{}
	for rule, ids := range byRule {
		old := map[string]bool{}
		for part := range slices.Chunk(ids, pageOfBin) {
			texts, err := b.Client.HMGet(ctx, binnedKey(b.Layout, rule), part...).Result()
			if err != nil {
				return nil, fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
			}
			for i, text := range texts {
				text, ok := text.(string)
				if !ok {
					old[part[i]] = true
					continue
				}
				e, err := readEntry(rule, text)
				if err != nil {
					return nil, err
				}
				found[rule+"/"+part[i]] = e
			}
		}
		if err := b.findOld(ctx, rule, old, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (b Bins) findOld(ctx context.Context, rule string, ids map[string]bool, found map[string]binned) error {
	for cursor, first := uint64(0), true; len(ids) > 0 && (first || cursor != 0); first = false {
		var page []string
		var err error
		if page, cursor, err = b.Client.ZScan(ctx, oldBinKey(b.Layout, rule), cursor, "", pageOfBin).Result(); err != nil {
			return fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
		}
		for i := 0; i+1 < len(page); i += 2 {
			e, err := readOld(rule, page[i], page[i+1])
			if err == nil && ids[e.ID] { // an unreadable entry matches none
				found[rule+"/"+e.ID] = e
				delete(ids, e.ID)
			}
		}
	}
	return nil
}

// Restore puts back the entries with these ids, with their expiry, and returns the fate of each in
// the same order. It overwrites nothing. With an error of Redis it returns the results so far;
// an entry that only stays in its bin does not end it.
func (b Bins) Restore(ctx context.Context, ids ...string) ([]Restored, error) {
	at, err := b.now(ctx)
	if err != nil {
		return nil, err
	}
	byID, err := b.find(ctx, ids)
	if err != nil {
		return nil, err
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
		delete(byID, id) // an id given twice is restored once
		r, err := b.restore(ctx, e, at)
		if err != nil {
			return all, cmp.Or(stays, fmt.Errorf("orphan: restore %s: %w", id, err))
		}
		all = append(all, r)
		if r.Fate == Back || r.Fate == Dropped || r.Fate == NotThere {
			// If this fails, the entry is stale; nothing depends on it.
			if err := b.forget(ctx, e.rule, []binned{e}); err != nil && stays == nil {
				stays = fmt.Errorf("orphan: the entry of %s stays in its bin: %w", id, err)
			}
		}
	}
	return all, stays
}

func (b Bins) forget(ctx context.Context, rule string, entries []binned) error {
	var ids, old []any
	for _, e := range entries {
		if e.old != "" {
			old = append(old, e.old)
		} else {
			ids = append(ids, e.ID)
		}
	}
	if len(ids) > 0 {
		keys := []string{binnedKey(b.Layout, rule), dropsKey(b.Layout, rule)}
		if err := dropScript.Run(ctx, b.Client, keys, ids...).Err(); err != nil {
			return err
		}
	}
	if len(old) == 0 {
		return nil
	}
	return b.Client.ZRem(ctx, oldBinKey(b.Layout, rule), old...).Err()
}

func (b Bins) restore(ctx context.Context, e binned, at time.Time) (Restored, error) {
	member, key, aside := "", rules.Spell(string(e.Key)), rules.Spell(string(e.Aside))
	if e.Member != nil {
		member = string(*e.Member)
	}
	if e.Member != nil && e.By == "" {
		return Restored{Binned: e.shown(), Fate: NoType,
			Sentence: "its entry does not say of what type " + key + " was; what it had of it is in " +
				aside}, nil
	}
	said, err := restoreScript.Run(ctx, b.Client, []string{string(e.Aside), string(e.Key)}, e.By, member,
		int64(e.Expires)).Text()
	if err != nil {
		return Restored{}, err
	}
	r := Restored{Binned: e.shown()}
	moment := func(ms float64) string { return time.UnixMilli(int64(ms)).UTC().Format(time.RFC3339) }
	switch said {
	case "restored":
		r.Fate, r.Sentence = Back, key+" is there again"
	case "taken":
		r.Fate = InUse
		r.Sentence = key + " is in use again, and was not overwritten; move that away first, and restore it until " +
			moment(e.Until)
	case "expired":
		r.Fate, r.Sentence = Expired, fmt.Sprintf("%s would have expired at %s", key, moment(e.Expires))
	default:
		r.Fate, r.Sentence = Dropped, "the bin has dropped it: its time was over at "+moment(e.Until)
		if e.Until > float64(at.UnixMilli()) {
			r.Fate = NotThere
			r.Sentence = "it is no longer in the bin: an earlier restore, whose answer was lost, put " + key +
				" back, or somebody deleted " + aside
		}
	}
	return r, nil
}
