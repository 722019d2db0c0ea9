package orphan

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// The steps of a delete on a Cluster, where fence, marks and log are on one server ("home"):
//
//	intend  at home, under the guard: record the intent, also in the log
//	away    on the key's own server: move it aside if it is as the look saw it, within evidenceFor
//	settle  at home, under the guard: end the intent, and count it once
//
// A pass begins with the intents that an earlier one left: it settles those that were carried out,
// and drops those that no longer can be.

// evidenceFor is how long a look counts, by the clock of the key's server.
const evidenceFor = 2 * time.Second

// awayFor is added to a moved key's time in the bin, in case home forgets it and nobody settles or
// drops it. Redis then frees it at once, however large.
const awayFor = 7 * 24 * time.Hour

//go:embed same.lua
var sameText string

//go:embed intend.lua
var intendText string

//go:embed away.lua
var awayText string

//go:embed settle.lua
var settleText string

var (
	intendBody = guard.NewBody(ripeText + intendText)
	settleBody = guard.NewBody(settleText)
	awayScript = redis.NewScript(sameText + awayText)
)

func intentsKey(l guard.Layout, rule string) string { return l.Prefix + "orphan:intents:" + rule }

type intent struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Counts int    `json:"counts"`
	// must be carried out before this one
	First   string `json:"first,omitempty"`
	Key     raw    `json:"key"`
	Member  []raw  `json:"member,omitempty"` // command that removes it
	Aside   raw    `json:"aside"`
	Until   int64  `json:"until"` // last ms for the delete, by its server's clock
	Expires int64  `json:"expires"`
	Pass    int64  `json:"pass"` // start of the pass (ms)
	// Related: counted with an earlier candidate. Last: nothing is left after it.
	Related bool    `json:"related,omitempty"`
	Last    bool    `json:"last,omitempty"`
	Seen    [][]raw `json:"seen"`
}

// aside returns a key's name in the bin: in the same slot, unless the key has odd braces.
func aside(id, key string) string {
	_, behind, _ := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(behind, "}"); !closed || tag == "" {
		key = "{" + key + "}"
	}
	return asideBegin + id + ":" + key
}

const asideBegin = "orphan:bin:"

// remotely goes in rounds, as a look counts only for a short time. clocks were read before the
// look.
func (x *pass) remotely(ctx context.Context, found []*finding, clocks clocks) error {
	for len(found) > 0 {
		n, keys := 0, 0
		for n < len(found) && (n == 0 || keys+len(found[n].gone) < stepOf) {
			keys += 1 + len(found[n].gone)
			n++
		}
		var round []*departure
		for _, f := range found[:n] {
			if d := x.departureOf(f, clocks); d != nil {
				round = append(round, d)
			} else {
				x.r.Kept[unknown]++ // no new name in its slot
			}
		}
		went, err := x.depart(ctx, round)
		if err != nil || !x.r.Coverage.Complete {
			return err
		}
		for _, d := range round {
			if went[d.intents[0].ID] && len(d.left) > 0 {
				d.carried(went)
				if err := x.followRemotely(ctx, d); err != nil || !x.r.Coverage.Complete {
					return err
				}
			}
		}
		if found = found[n:]; len(found) > 0 {
			var again []*candidate
			for _, f := range found {
				again = append(again, &f.candidate)
			}
			return x.reapSome(ctx, again)
		}
	}
	return nil
}

type departure struct {
	f       *finding
	follows bool // the candidate itself was deleted
	intents []intent
	left    []string
	whole   bool // all known related keys are deleted, in intents or in left
}

// departureOf starts with the candidate, or returns nil if it cannot be deleted. Related keys
// follow only once it is away: if it changed, they stay.
func (x *pass) departureOf(f *finding, clocks clocks) *departure {
	d := &departure{f: f, whole: !f.more}
	keys := f.gone
	switch {
	case f.member != "" && !f.alone:
		d.add(x, f.key, []string{x.removal(), f.key, f.member}, clocks)
	case len(keys) > 0:
		d.add(x, keys[0], nil, clocks)
		keys = keys[1:]
	}
	if len(d.intents) == 0 {
		return nil
	}
	d.intents[0].Counts = 1
	if f.rest != nil {
		d.intents[0].Counts, d.intents[0].Related = 0, true
	}
	for i, key := range keys {
		if i >= stepOf {
			d.left = keys[i:]
			break
		}
		d.add(x, key, nil, clocks)
	}
	for i := range d.intents[1:] {
		d.intents[i+1].First = d.intents[0].ID
	}
	d.intents[len(d.intents)-1].Last = d.whole && len(d.left) == 0
	return d
}

// add skips observations of other keys to delete, which may be away already.
func (d *departure) add(x *pass, key string, member []string, clocks clocks) {
	id := fmt.Sprintf("%s-%d-%d", x.r.Rule, x.Epoch(), x.sweep.intents)
	x.sweep.intents++
	s := x.servers.at(key)
	name := aside(id, key)
	if s == nil || slot.Of(name) != slot.Of(key) {
		d.whole = false
		return
	}
	f := d.f
	each := intent{
		ID: id, Name: f.name(), Key: raw(key), Member: raws(member), Aside: raw(name), Expires: -1,
		Related: len(d.intents) > 0 || d.follows,
		Until:   clocks[s.addr].Add(x.set.evidence).UnixMilli(), Pass: x.began.UnixMilli(), Seen: [][]raw{},
	}
	own := len(d.intents) == 0 && !d.follows
	for _, o := range f.observations {
		if o.args[0] == "PUBSUB" || o.of != "" && o.of != key || slot.Of(o.args[1]) != slot.Of(key) {
			continue
		}
		if !own && o.args[1] == f.key && !f.alone || o.args[1] != key && slices.Contains(f.gone, o.args[1]) {
			continue
		}
		each.Seen = append(each.Seen, append([]raw{raw(o.answer)}, raws(o.args)...))
		if o.args[0] == "PEXPIRETIME" && o.args[1] == key {
			each.Expires, _ = strconv.ParseInt(strings.TrimPrefix(o.answer, ":"), 10, 64)
		}
	}
	if member != nil && d.f.expires > 0 {
		each.Expires = d.f.expires
	}
	d.intents = append(d.intents, each)
}

func (x *pass) depart(ctx context.Context, round []*departure) (went map[string]bool, err error) {
	if len(round) == 0 {
		return nil, nil
	}
	// The look could not see what a server lost by a restart since.
	var now *topology
	err = x.Call(ctx, func(ctx context.Context) error {
		now = x.servers.again(ctx)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := x.servers.changed(now); err != nil {
		x.r.Coverage.Complete = false
		x.Log().Warn("servers have changed behind the last look, and nothing more goes", "rule", x.r.Rule, "error", err)
		return nil, nil
	}
	// On one server this is one step with the delete. Here it comes after the last look.
	for _, o := range x.premises {
		there := int64(0)
		err := x.Call(ctx, func(ctx context.Context) (err error) {
			there, err = x.Client().Exists(ctx, o.args[1]).Result()
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("orphan: references of rule %q: %w", x.r.Rule, err)
		}
		if there == 0 {
			x.complete = false
			return nil, x.holdLost()
		}
	}
	noted, err := x.intend(ctx, round)
	if err != nil {
		return nil, err
	}
	return x.carryOut(ctx, noted)
}

// intend returns the intents that were recorded: candidates must be ripe.
func (x *pass) intend(ctx context.Context, round []*departure) (noted []intent, err error) {
	var items []string
	follows := 0
	for _, d := range round {
		texts := make([][2]raw, len(d.intents))
		for i, each := range d.intents {
			text, err := json.Marshal(each)
			if err != nil {
				return nil, fmt.Errorf("orphan: rule %q: %w", x.r.Rule, err)
			}
			texts[i] = [2]raw{raw(each.ID), raw(text)}
		}
		it := struct {
			proof
			Follows bool     `json:"follows,omitempty"`
			Rest    *raw     `json:"rest,omitempty"`
			Intents [][2]raw `json:"intents"`
		}{x.proofOf(d.f), d.follows, nil, texts}
		if d.follows {
			follows++
		} else if len(d.intents)+len(d.left) > 1 || d.f.more {
			text := x.restOf(d.f)
			it.Rest = &text
		}
		text, err := json.Marshal(it)
		if err != nil {
			return nil, fmt.Errorf("orphan: rule %q: %w", x.r.Rule, err)
		}
		items = append(items, string(text))
	}
	layout, rule := x.Layout(), x.r.Rule
	answer, err := x.Pass.Delete(ctx, janitor.Batch{
		Body:  intendBody,
		Keys:  []string{marksKey(layout, rule), restsKey(layout, rule), intentsKey(layout, rule)},
		Items: items,
	})
	x.AddCondemned(-follows) // counted with their candidate
	if err != nil {
		return nil, err
	}
	x.r.Kept[changed] += answer.Reowned
	for _, d := range round {
		noted = append(noted, d.intents...)
	}
	if answer.Reowned == 0 {
		return noted, nil
	}
	ids := make([]string, len(noted))
	for i, each := range noted {
		ids[i] = each.ID
	}
	var there []any
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		there, err = x.Client().HMGet(ctx, intentsKey(layout, rule), ids...).Result()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("orphan: intents of rule %q: %w", rule, err)
	}
	var all []intent
	for i, each := range noted {
		if there[i] != nil {
			all = append(all, each)
		}
	}
	return all, nil
}

// carryOut moves candidates away, then the related keys of moved ones, and settles all.
func (x *pass) carryOut(ctx context.Context, intents []intent) (went map[string]bool, err error) {
	went = map[string]bool{"": true}
	for _, later := range []bool{false, true} {
		var now []intent
		for _, each := range intents {
			if (each.First != "") == later && went[each.First] {
				now = append(now, each)
			}
		}
		if err := x.moveAway(ctx, now, went); err != nil {
			return nil, err
		}
	}
	return went, x.settle(ctx, intents, went)
}

func (x *pass) moveAway(ctx context.Context, intents []intent, went map[string]bool) error {
	keep := (x.Bin + awayFor).Milliseconds()
	for _, i := range intents {
		keys := []string{string(i.Key), string(i.Aside)}
		for _, seen := range i.Seen {
			keys = append(keys, string(seen[2]))
		}
		c := map[string]any{"seen": i.Seen}
		if len(i.Member) > 0 {
			c["member"] = i.Member
		}
		text, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("orphan: intent: %w", err)
		}
		said := 0
		err = x.Call(ctx, func(ctx context.Context) (err error) {
			said, err = awayScript.Run(ctx, x.Client(), keys, i.Until, keep, string(text)).Int()
			return err
		})
		if err != nil {
			return fmt.Errorf("orphan: %s: %w", rules.Spell(string(i.Key)), err)
		}
		went[i.ID] = said == 1
	}
	return nil
}

func (d *departure) carried(went map[string]bool) {
	for _, i := range d.intents {
		d.whole = d.whole && went[i.ID]
	}
}

func (x *pass) followRemotely(ctx context.Context, d *departure) error {
	for left, whole := d.left, d.whole; len(left) > 0; {
		some := left[:min(stepOf, len(left))]
		left = left[len(some):]
		later, clocks, err := x.lookAtRest(ctx, d.f, some)
		if err != nil || later == nil {
			return err
		}
		next := &departure{f: later, follows: true, whole: whole && len(later.gone) == len(some)}
		for _, key := range later.gone {
			next.add(x, key, nil, clocks)
		}
		if len(next.intents) == 0 {
			return nil
		}
		next.intents[len(next.intents)-1].Last = next.whole && len(left) == 0
		went, err := x.depart(ctx, []*departure{next})
		if err != nil || !x.r.Coverage.Complete {
			return err
		}
		next.carried(went)
		whole = next.whole
	}
	return nil
}

func (i intent) binned(keep, evidence time.Duration) ([]byte, int64, error) {
	at := i.Until - evidence.Milliseconds()
	b := binned{
		ID: i.ID, Name: i.Name, Key: i.Key, Aside: i.Aside, Expires: float64(i.Expires), At: float64(at),
		Pass: float64(i.Pass), Until: float64(at + keep.Milliseconds()),
	}
	if len(i.Member) > 0 {
		b.Member, b.By = &i.Member[2], string(i.Member[0])
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, 0, fmt.Errorf("orphan: entry of a bin: %w", err)
	}
	return text, at + keep.Milliseconds(), nil
}
