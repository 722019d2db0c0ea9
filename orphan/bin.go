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

var (
	//go:embed restore.lua
	restoreText string
	//go:embed drop.lua
	dropText string

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
	Name    string    `json:"name"` // of the candidate
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
	Expired  Fate = "expired" // it, or its key, would have expired by now; the entry stays in the bin
	Dropped  Fate = "dropped" // its time in the bin is over
	NotThere Fate = "unknown" // in no bin: restored before, or never existed
)

type binned struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Key        raw    `json:"key"`
	Member     *raw   `json:"member,omitempty"`
	By         string `json:"by,omitempty"` // ZREM, SREM, HDEL
	Aside      raw    `json:"aside"`
	Expires    int64  `json:"expires"`              // ms; -1: never
	KeyExpires int64  `json:"keyExpires,omitempty"` // of the key that had the member
	At         int64  `json:"at"`
	Pass       int64  `json:"pass"`
	Until      int64  `json:"until,omitempty"`

	rule string
}

func (b binned) shown() Binned {
	shown := Binned{
		ID: b.rule + "/" + b.ID, Rule: b.rule, Name: b.Name, Key: rules.Spell(string(b.Key)),
		Removed: time.UnixMilli(b.At), Until: time.UnixMilli(b.Until),
		Pass: time.UnixMilli(b.Pass),
	}
	if b.Member != nil {
		shown.Member = rules.Spell(string(*b.Member))
	}
	return shown
}

func (b Bins) now(ctx context.Context) (time.Time, error) {
	servers, err := masters(ctx, b.Client, nodeTimeout)
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

// Count returns how much is in the bins of one rule, or of all (""), also what will soon be
// dropped.
func (b Bins) Count(ctx context.Context, rule string) (n int64, err error) {
	names, err := b.rules(ctx, rule)
	for _, name := range names {
		some, failed := b.Client.ZCard(ctx, dropsKey(b.Layout, name)).Result()
		n, err = n+some, cmp.Or(err, failed)
	}
	return n, err
}

// All iterates over what can be restored, of one rule or of all (""), rule by rule; first what
// stays longest. It holds one page. Entries added meanwhile make others appear twice. An error ends
// the iteration; the last one names an entry that cannot be read.
func (b Bins) All(ctx context.Context, rule string) iter.Seq2[Binned, error] {
	return func(yield func(Binned, error) bool) {
		at, err := b.now(ctx)
		var names []string
		if err == nil {
			names, err = b.rules(ctx, rule)
		}
		var damaged error
		for _, name := range names {
			more := err == nil
			for from := int64(0); more; from += pageOfBin {
				var ids []string
				var found map[string]binned
				ids, err = b.Client.ZRevRange(ctx, dropsKey(b.Layout, name), from, from+pageOfBin-1).Result()
				if err == nil {
					found, _, err = b.entries(ctx, name, ids, &damaged)
				}
				for _, id := range ids {
					if e, has := found[id]; has && e.Until >= at.UnixMilli() && !yield(e.shown(), nil) {
						return
					}
				}
				more = err == nil && len(ids) > 0
			}
		}
		if err := cmp.Or(err, damaged); err != nil {
			yield(Binned{}, err)
		}
	}
}

// entries returns those that exist, and the ids of those that cannot be read, with the first error.
func (b Bins) entries(
	ctx context.Context, rule string, ids []string, damaged *error,
) (found map[string]binned, unread []string, err error) {
	if len(ids) == 0 {
		return nil, nil, nil
	}
	texts, err := b.Client.HMGet(ctx, binnedKey(b.Layout, rule), ids...).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
	}
	found = map[string]binned{}
	for i, text := range texts {
		text, ok := text.(string)
		if !ok { // it was restored, and only half forgotten
			continue
		}
		e := binned{rule: rule}
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			unread = append(unread, ids[i])
			*damaged = cmp.Or(*damaged, fmt.Errorf("orphan: %s: entry %.200q: %w", binnedKey(b.Layout, rule), ids[i], err))
			continue
		}
		found[ids[i]] = e
	}
	return found, unread, nil
}

// List is Newest, with 10,000 as the most.
func (b Bins) List(ctx context.Context, rule string) ([]Binned, error) {
	return b.Newest(ctx, rule, mostListed)
}

const mostListed = 10_000

// Newest returns what stays longest of each rule, and of that the newest, at most so many, oldest
// first. With an error it returns the readable entries.
func (b Bins) Newest(ctx context.Context, rule string, most int) ([]Binned, error) {
	all := []Binned{}
	names, failed := b.rules(ctx, rule)
	for _, name := range names {
		n := 0
		for one, err := range b.All(ctx, name) {
			if failed = cmp.Or(failed, err); err != nil || n == most {
				break
			}
			all = append(all, one)
			n++
		}
		slices.SortFunc(all, newestLast)
		all = slices.Clone(all[max(0, len(all)-most):])
	}
	return all, failed
}

// oneMistake is the longest time between two deletes of one mistake: passes that follow one another
// because of a cap, or as graces end.
const oneMistake = 15 * time.Minute

// LastMistake returns the ids of what one rule removed last: back from its newest delete, as long
// as the one before is at most 15 minutes older. For "" it is the rule that deleted last. before
// counts what the rule removed earlier, and can be restored too.
func (b Bins) LastMistake(ctx context.Context, rule string) (ids []string, before int, err error) {
	var all []Binned
	for one, err := range b.All(ctx, rule) {
		if err != nil {
			return nil, 0, err
		}
		all = append(all, one)
	}
	slices.SortFunc(all, newestLast)
	all = slices.CompactFunc(all, func(a, b Binned) bool { return a.ID == b.ID })
	from := len(all) - 1
	if from < 0 {
		return nil, 0, nil
	}
	rule = all[from].Rule
	all = slices.DeleteFunc(all, func(one Binned) bool { return one.Rule != rule })
	for from = len(all) - 1; from > 0 && all[from].Removed.Sub(all[from-1].Removed) <= oneMistake; from-- {
	}
	for _, one := range all[from:] {
		ids = append(ids, one.ID)
	}
	return ids, from, nil
}

func newestLast(a, b Binned) int {
	return cmp.Or(a.Removed.Compare(b.Removed), cmp.Compare(a.ID, b.ID))
}

// Restore puts back the entries with these ids, with their expiry, and returns the fate of each in
// the same order. It overwrites nothing. With an error of Redis it returns the results so far;
// an entry that only stays in its bin does not end it.
func (b Bins) Restore(ctx context.Context, ids ...string) ([]Restored, error) {
	at, err := b.now(ctx)
	if err != nil {
		return nil, err
	}
	var all []Restored
	var stays error
	for part := range slices.Chunk(ids, pageOfBin) {
		byRule, found := map[string][]string{}, map[string]binned{}
		for _, id := range part {
			// The list of rules may be lost with the passes, so take the rule from the id.
			if i := strings.LastIndexByte(id, '/'); i > 0 {
				byRule[id[:i]] = append(byRule[id[:i]], id[i+1:])
			}
		}
		for rule, names := range byRule {
			some, _, err := b.entries(ctx, rule, names, &stays)
			if err != nil {
				return all, err
			}
			for name, e := range some {
				found[rule+"/"+name] = e
			}
		}
		for _, id := range part {
			e, has := found[id]
			if !has {
				all = append(all, Restored{Binned{ID: id}, NotThere,
					"no bin has it: it was restored before, its time is over, or it never was there"})
				continue
			}
			delete(found, id) // an id given twice is restored once
			r, err := b.restore(ctx, e, at)
			if err != nil {
				return all, cmp.Or(stays, fmt.Errorf("orphan: restore %s: %w", id, err))
			}
			all = append(all, r)
			if r.Fate == Back || r.Fate == Dropped || r.Fate == NotThere {
				// If this fails, the entry is stale; nothing depends on it.
				if err := b.forget(ctx, e.rule, e.ID); err != nil && stays == nil {
					stays = fmt.Errorf("orphan: the entry of %s stays in its bin: %w", id, err)
				}
			}
		}
	}
	return all, stays
}

func (b Bins) forget(ctx context.Context, rule string, ids ...string) error {
	return dropScript.Run(ctx, b.Client, []string{binnedKey(b.Layout, rule), dropsKey(b.Layout, rule)}, anys(ids)...).Err()
}

func (b Bins) restore(ctx context.Context, e binned, at time.Time) (Restored, error) {
	member, key, aside := "", rules.Spell(string(e.Key)), rules.Spell(string(e.Aside))
	if e.Member != nil {
		member = string(*e.Member)
	}
	said, err := restoreScript.Run(ctx, b.Client, []string{string(e.Aside), string(e.Key)}, e.By, member,
		e.Expires, e.KeyExpires).Text()
	if err != nil {
		return Restored{}, err
	}
	r := Restored{Binned: e.shown()}
	moment := func(ms int64) string { return time.UnixMilli(ms).UTC().Format(time.RFC3339) }
	switch said {
	case "restored":
		r.Fate, r.Sentence = Back, key+" is there again"
	case "taken":
		r.Fate = InUse
		r.Sentence = key + " is in use again, and was not overwritten; move that away first, and restore it until " +
			moment(e.Until)
	case "expired":
		r.Fate, r.Sentence = Expired, fmt.Sprintf("%s would have expired at %s", key, moment(e.Expires))
	case "key expired":
		r.Fate, r.Sentence = Expired, fmt.Sprintf("%s, which had it, would have expired at %s", key, moment(e.KeyExpires))
	default:
		r.Fate, r.Sentence = Dropped, "the bin has dropped it: its time was over at "+moment(e.Until)
		if e.Until > at.UnixMilli() {
			r.Fate = NotThere
			r.Sentence = "it is no longer in the bin: an earlier restore, whose answer was lost, put " + key +
				" back, or somebody deleted " + aside
		}
	}
	return r, nil
}

const dropOf = 100

// dropBins drops things whose time in the bin is over. If they expired, Redis would free them at
// once and block everybody. The first rule also empties the bins of removed rules.
func (x *pass) dropBins(ctx context.Context) error {
	gone, err := x.rulesGone(ctx)
	if err != nil {
		return err
	}
	at, err := now(ctx, x.Pass, x.home)
	if err != nil {
		return err
	}
	for _, rule := range append(gone, x.r.Rule) {
		if err := x.dropDue(ctx, rule, strconv.FormatInt(at.UnixMilli(), 10)); err != nil {
			return fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
		}
	}
	return nil
}

// rulesGone returns removed rules that had passes: only in full passes of the first rule.
func (x *pass) rulesGone(ctx context.Context) (gone []string, err error) {
	if !x.r.Full || x.set.rules[0] != x.rule {
		return nil, nil
	}
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		gone, err = x.Client().HKeys(ctx, passesKey(x.Layout())).Result()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("orphan: passes: %w", err)
	}
	return slices.DeleteFunc(gone, x.set.has), nil
}

// dropDue unlinks what is due before it forgets the entries, so that a crash in between leaves no
// key without an entry. It leaves unreadable entries, as their things cannot be found.
func (x *pass) dropDue(ctx context.Context, rule, until string) error {
	bins := Bins{Client: x.Client(), Layout: x.Layout()}
	for left := int64(0); ; {
		var ids, unread []string
		var damaged error
		var found map[string]binned
		err := x.Call(ctx, func(ctx context.Context) (err error) {
			ids, err = x.Client().ZRangeByScore(ctx, dropsKey(x.Layout(), rule),
				&redis.ZRangeBy{Min: "-inf", Max: until, Offset: left, Count: dropOf}).Result()
			return err
		})
		if err != nil || len(ids) == 0 {
			return err
		}
		err = x.Call(ctx, func(ctx context.Context) (err error) {
			found, unread, err = bins.entries(ctx, rule, ids, &damaged)
			return err
		})
		if err != nil {
			return err
		}
		if damaged != nil && x.r.Full {
			x.Log().Warn("entry of a bin cannot be read, and stays until somebody deletes it",
				"rule", x.r.Rule, "error", damaged)
		}
		left += int64(len(unread))
		ids = slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(unread, id) })
		if len(ids) == 0 {
			continue
		}
		if err := x.drop(ctx, rule, ids, found, bins); err != nil {
			return err
		}
	}
}

func (x *pass) drop(ctx context.Context, rule string, ids []string, found map[string]binned, bins Bins) error {
	err := x.Call(ctx, func(ctx context.Context) error {
		_, err := x.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, e := range found {
				if aside := string(e.Aside); strings.HasPrefix(aside, asideBegin) {
					pipe.Unlink(ctx, aside)
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	return x.Call(ctx, func(ctx context.Context) error { return bins.forget(ctx, rule, ids...) })
}
