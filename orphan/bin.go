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

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
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

// binned is what an intent is stored as, and then the entry of the bin. Names are spelled.
type binned struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Key        string `json:"key"`
	Member     string `json:"member,omitempty"`
	By         string `json:"by,omitempty"` // ZREM, SREM, HDEL
	Aside      string `json:"aside"`
	Expires    int64  `json:"expires"`              // ms; -1: never
	KeyExpires int64  `json:"keyExpires,omitempty"` // of the key that had the member
	At         int64  `json:"at"`
	Pass       int64  `json:"pass"`
	Until      int64  `json:"until,omitempty"`
	Last       int64  `json:"last,omitempty"` // ms, by the key's server, at which the intent's look still counts

	rule string
}

func (b binned) shown() Binned {
	return Binned{
		ID: b.rule + "/" + b.ID, Rule: b.rule, Name: b.Name, Key: b.Key, Member: b.Member,
		Removed: time.UnixMilli(b.At), Until: time.UnixMilli(b.Until), Pass: time.UnixMilli(b.Pass),
	}
}

const pageOfBin = 500

// All iterates over what can be restored, of one rule or of all (""), rule by rule; first what
// stays longest. It holds one page. Entries added meanwhile make others appear twice. An error ends
// the iteration; the last one names an entry that cannot be read.
func (b Bins) All(ctx context.Context, rule string) iter.Seq2[Binned, error] {
	return func(yield func(Binned, error) bool) {
		_, at, err := homeTime(ctx, plainly{b.Client}, b.Layout)
		names := []string{rule}
		if rule == "" && err == nil { // every one that ever had a pass
			var passes map[string]janitor.Report
			passes, err = ReadPasses(ctx, b.Client, b.Layout)
			names = sorted(passes)
		}
		var damaged error
		for _, name := range names {
			for from := int64(0); err == nil; from += pageOfBin {
				var ids []string
				if ids, err = b.Client.ZRevRange(ctx, dropsKey(b.Layout, name), from, from+pageOfBin-1).Result(); len(ids) == 0 {
					break
				}
				var found []binned
				if found, _, err = b.entries(ctx, name, ids, &damaged); err != nil {
					break
				}
				for _, e := range found {
					if e.Until >= at.UnixMilli() && !yield(e.shown(), nil) {
						return
					}
				}
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
) (found []binned, unread []string, err error) {
	texts, err := b.Client.HMGet(ctx, binnedKey(b.Layout, rule), ids...).Result()
	if err != nil {
		return nil, nil, fmt.Errorf("orphan: bin of rule %q: %w", rule, err)
	}
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
		found = append(found, e)
	}
	return found, unread, nil
}

const mostListed = 10_000

// List returns what stays longest of each rule, and of that the newest, at most 10,000, oldest
// first. With an error it returns the readable entries.
func (b Bins) List(ctx context.Context, rule string) (all []Binned, failed error) {
	all = []Binned{}
	of := map[string]int{}
	for one, err := range b.All(ctx, rule) {
		if failed = err; err != nil {
			break
		}
		if of[one.Rule]++; of[one.Rule] <= mostListed {
			all = append(all, one)
		} else if rule != "" {
			break
		}
	}
	slices.SortFunc(all, newestFirst)
	all = all[:min(len(all), mostListed)]
	slices.Reverse(all)
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
	slices.SortFunc(all, newestFirst)
	var at time.Time
	for _, one := range slices.CompactFunc(all, func(a, b Binned) bool { return a.ID == b.ID }) {
		switch {
		case one.Rule != all[0].Rule:
		case before > 0 || at.Sub(one.Removed) > oneMistake:
			before++
		default:
			ids, at = append(ids, one.ID), one.Removed
		}
	}
	return ids, before, nil
}

func newestFirst(a, b Binned) int {
	return cmp.Or(b.Removed.Compare(a.Removed), cmp.Compare(a.ID, b.ID))
}

// Restore puts back the entries with these ids, with their expiry, and returns the fate of each in
// the same order. It overwrites nothing. With an error of Redis it returns the results so far;
// an entry that only stays in its bin does not end it.
func (b Bins) Restore(ctx context.Context, ids ...string) (all []Restored, err error) {
	var stays error
	for _, id := range ids {
		// The list of rules may be lost with the passes, so take the rule from the id.
		i := strings.LastIndexByte(id, '/')
		found, _, err := b.entries(ctx, id[:max(i, 0)], []string{id[i+1:]}, &stays)
		if err != nil {
			return all, err
		}
		if len(found) == 0 {
			all = append(all, Restored{Binned{ID: id}, NotThere,
				"no bin has it: it was restored before, its time is over, or it never was there"})
			continue
		}
		e := found[0]
		r, err := b.restore(ctx, e)
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
	return all, stays
}

func (b Bins) forget(ctx context.Context, rule string, ids ...string) error {
	return dropScript.Run(ctx, b.Client, []string{binnedKey(b.Layout, rule), dropsKey(b.Layout, rule)}, anys(ids)...).Err()
}

func (b Bins) restore(ctx context.Context, e binned) (Restored, error) {
	key, names := e.Key, []string{rules.Unspell(e.Aside), rules.Unspell(e.Key)}
	said, err := restoreScript.Run(ctx, b.Client, names, e.By, rules.Unspell(e.Member), e.Expires, e.KeyExpires,
		e.Until).Text()
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
	case "dropped":
		r.Fate, r.Sentence = Dropped, "the bin has dropped it: its time was over at "+moment(e.Until)
	default:
		r.Fate = NotThere
		r.Sentence = "it is no longer in the bin: an earlier restore, whose answer was lost, put " + key +
			" back, or somebody deleted " + e.Aside
	}
	return r, nil
}

const dropOf = 100

// dropBins drops things whose time in the bin is over. If they expired, Redis would free them at
// once and block everybody. The first rule's full pass also settles the intents of removed rules,
// and empties their bins.
func (x *pass) dropBins(ctx context.Context) error {
	names := []string{x.r.Rule}
	at, err := now(ctx, x.Pass, x.home)
	if err == nil && x.r.Full && x.set.rules[0] == x.rule {
		err = x.Call(ctx, func(ctx context.Context) (err error) {
			names, err = x.Client().HKeys(ctx, passesKey(x.Layout())).Result()
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("orphan: bins: %w", err)
	}
	for _, name := range names {
		y := *x
		if name != x.r.Rule {
			if slices.ContainsFunc(x.set.rules, func(r *rule) bool { return r.Name == name }) {
				continue
			}
			y.r = &Result{Rule: name, Full: true, Kept: map[string]int{}}
			if err := y.settleLeft(ctx); err != nil {
				return err
			}
		}
		if err := y.dropDue(ctx, name, strconv.FormatInt(at.UnixMilli(), 10)); err != nil {
			return fmt.Errorf("orphan: bin of rule %q: %w", name, err)
		}
	}
	return nil
}

// dropDue unlinks what is due before it forgets the entries, so that a crash in between leaves no
// key without an entry. It leaves unreadable entries, as their things cannot be found.
func (x *pass) dropDue(ctx context.Context, rule, until string) error {
	bins := Bins{Client: x.Client(), Layout: x.Layout()}
	for left, n := int64(0), 1; n > 0; {
		err := x.Call(ctx, func(ctx context.Context) error {
			ids, err := x.Client().ZRangeByScore(ctx, dropsKey(x.Layout(), rule),
				&redis.ZRangeBy{Min: "-inf", Max: until, Offset: left, Count: dropOf}).Result()
			if n = len(ids); err != nil || n == 0 {
				return err
			}
			var damaged error
			found, unread, err := bins.entries(ctx, rule, ids, &damaged)
			if err != nil {
				return err
			}
			if damaged != nil && x.r.Full {
				x.Log().Warn("entry of a bin cannot be read, and stays until somebody deletes it", "rule", x.r.Rule, "error", damaged)
			}
			if left += int64(len(unread)); len(unread) == n {
				return nil
			}
			_, err = x.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, e := range found {
					if aside := rules.Unspell(e.Aside); strings.HasPrefix(aside, asideBegin) {
						pipe.Unlink(ctx, aside)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
			return bins.forget(ctx, rule, slices.DeleteFunc(ids, func(id string) bool { return slices.Contains(unread, id) })...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
