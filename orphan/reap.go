package orphan

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

//go:embed ripe.lua
var ripeText string

//go:embed delete.lua
var deleteText string

var deleteBody = guard.NewBody(sameText + ripeText + deleteText)

// Bounds of one script, which blocks the server.
const (
	reapOf   = 50
	stepOf   = 50   // keys to delete
	stepCost = 1500 // µs, estimated
	binCost  = 20   // µs for a key moved into a bin
	askCost  = 3    // µs for a repeated command
	hashRate = 200  // bytes of an answer per µs
)

// cost estimates the time (µs) to repeat these commands.
func cost(seen []observation) (cost int) {
	for _, o := range seen {
		cost += askCost + o.bytes/hashRate
	}
	return cost
}

type item struct {
	proof
	Follows  bool    `json:"follows,omitempty"`
	Seen     [][]raw `json:"seen"`
	Keys     []raw   `json:"keys"`
	Member   []raw   `json:"member,omitempty"`
	Field    int64   `json:"field,omitempty"`
	Counts   int     `json:"counts"`
	Rest     *raw    `json:"rest,omitempty"`
	Premises [][]raw `json:"premises,omitempty"`
	Bin      int64   `json:"bin,omitempty"`
	Pass     int64   `json:"pass"`
}

func (x *pass) reap(ctx context.Context) error {
	names := x.names()
	if len(names) == 0 {
		return nil
	}
	if x.r.DryRun {
		x.AddCondemned(len(names))
		x.lookAgain(len(names))
		return nil
	}
	at, err := now(ctx, x.Pass, x.home)
	if err != nil {
		return err
	}
	x.complete = false // until what this finds is recorded
	if err := x.checkReferences(ctx, at); err != nil {
		return err
	}
	x.complete = true
	if err := x.withRelated(ctx, names); err != nil {
		return err
	}
	return x.reapAll(ctx, names)
}

func (x *pass) reapAll(ctx context.Context, names []string) error {
	most := pageOf
	if x.servers.owner != nil { // evidence expires soon
		most = stepOf
	}
	var page []*candidate
	keys, some := 0, false
	reapPage := func() error {
		now := page
		page, keys, some = nil, 0, true
		return x.reapSome(ctx, now)
	}
	for _, name := range names {
		c := x.ripe[name]
		if some && len(page) == 0 && time.Since(x.lookedAt) > x.mayTake(c) {
			x.leave(name)
			continue
		}
		page, keys = append(page, c), keys+1+len(c.related)+len(x.exact)
		if len(page) < min(reapOf, x.BatchSize()) && keys < most {
			continue
		}
		if err := reapPage(); err != nil || !x.r.Coverage.Complete {
			return err
		}
	}
	if len(page) == 0 {
		return nil
	}
	return reapPage()
}

// withRelated adds the related keys that only a pattern finds. It needs a walk for candidates that
// had no mark when the full pass met those keys.
func (x *pass) withRelated(ctx context.Context, names []string) error {
	if len(x.wild) == 0 {
		return nil
	}
	missing := map[string]*candidate{}
	for _, name := range names {
		switch c, marked := x.ripe[name], x.marked[name]; {
		case c.alone:
		case x.gathered[name] && marked != nil:
			marked.tidy()
			c.related, c.more = marked.related, marked.more
		case !x.gathered[name]:
			missing[name] = c
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return x.findRelated(ctx, missing)
}

func (x *pass) reapSome(ctx context.Context, page []*candidate) error {
	x.complete = false // until the signs of life that this finds are recorded
	found, clocks, err := x.lookLast(ctx, page)
	if err != nil {
		return err
	}
	var unset []string
	same := slices.DeleteFunc(found, func(f *finding) bool {
		gone := f.verdict != condemned || f.fingerprint != x.notes.marks[f.name()].print
		if gone {
			x.r.Kept[changed]++
			unset = append(unset, f.name())
		}
		return gone
	})
	if err := x.note(ctx, nil, unset); err != nil {
		return err
	}
	x.complete = true
	if len(same) == 0 {
		return nil
	}
	if x.servers.owner != nil {
		return x.remotely(ctx, same, clocks)
	}
	var s script
	for _, f := range same {
		first, left := x.firstStep(f)
		if len(left) > 0 { // they depend on whether it was deleted
			if err := x.follow(ctx, f, first, left); err != nil {
				return err
			}
			continue
		}
		if err := x.add(ctx, &s, f, first); err != nil {
			return err
		}
	}
	return x.send(ctx, &s)
}

type move struct {
	item
	seen []observation
	keys []string
}

func (x *pass) firstStep(f *finding) (s move, left []string) {
	s.item = item{proof: x.proofOf(f), Counts: 1, Bin: x.Bin.Milliseconds(), Pass: x.began.UnixMilli()}
	if f.rest != nil {
		s.Counts = 0
	}
	if f.member != "" && !f.alone {
		s.Member, s.Field = raws([]string{x.removal(), f.key, f.member}), f.expires
	}
	s.keys, left = x.take(f, f.gone)
	s.seen = f.without(left)
	if len(left) > 0 || f.more {
		text := x.restOf(f)
		s.Rest = &text
	} else if f.rest != nil {
		s.Rest = new(raw)
	}
	return s, left
}

// take takes as many keys as fit in one step, at least one.
func (x *pass) take(f *finding, keys []string) (taken, left []string) {
	each := 1
	if x.Bin > 0 {
		each = binCost
	}
	of := f.byKey()
	sum := 0
	for i, key := range keys {
		sum += each + cost(of[key])
		if i > 0 && (i >= stepOf || sum > stepCost) {
			return keys[:i:i], keys[i:]
		}
	}
	return append([]string{}, keys...), nil
}

func (f *finding) byKey() map[string][]observation {
	if f.keyed == nil {
		f.keyed = map[string][]observation{}
		for _, o := range f.observations {
			f.keyed[o.of] = append(f.keyed[o.of], o)
		}
	}
	return f.keyed
}

func (f *finding) without(keys []string) []observation {
	if len(keys) == 0 {
		return f.observations
	}
	leave := make(map[string]bool, len(keys))
	for _, key := range keys {
		leave[key] = true
	}
	return slices.DeleteFunc(slices.Clone(f.observations), func(o observation) bool { return leave[o.of] })
}

// only returns the observations that identify these keys, or no key to delete.
func (f *finding) only(keys []string) []observation {
	of := f.byKey()
	seen := slices.Clone(of[""])
	for _, key := range keys {
		seen = append(seen, of[key]...)
	}
	return seen
}

// follow deletes a candidate with more related keys than fit in one script, and then those in
// steps: each only if it is unchanged and no sign of life has appeared.
func (x *pass) follow(ctx context.Context, f *finding, first move, left []string) error {
	var s script
	if err := x.add(ctx, &s, f, first); err != nil {
		return err
	}
	if err := x.send(ctx, &s); err != nil {
		return err
	}
	went, err := x.leftRest(ctx, f)
	if err != nil || !went {
		return err
	}
	whole := !f.more
	if f.alone { // its parent was already gone, so the look still holds
		later := *f
		later.gone = left
		_, err := x.takeRest(ctx, f, &later, whole, true)
		return err
	}
	for len(left) > 0 {
		some := left[:min(pageOf, len(left))]
		left = left[len(some):]
		later, _, err := x.lookAtRest(ctx, f, some)
		if err != nil || later == nil {
			return err
		}
		whole = whole && len(later.gone) == len(some)
		if whole, err = x.takeRest(ctx, f, later, whole, len(left) == 0); err != nil {
			return err
		}
	}
	return nil
}

// takeRest returns whether all that was related is deleted so far. The last step deletes its rest.
func (x *pass) takeRest(ctx context.Context, f, later *finding, whole, last bool) (bool, error) {
	var s script
	for keys := later.gone; len(keys) > 0; {
		next := move{item: item{
			proof: x.proofOf(later), Follows: true, Bin: x.Bin.Milliseconds(), Pass: x.began.UnixMilli(),
		}}
		next.keys, keys = x.take(later, keys)
		next.seen = later.only(next.keys)
		if last && len(keys) == 0 && whole {
			next.Rest = new(raw)
		}
		if err := x.add(ctx, &s, f, next); err != nil {
			return whole, err
		}
		kept := x.r.Kept[changed]
		if err := x.send(ctx, &s); err != nil {
			return whole, err
		}
		if x.r.Kept[changed] == kept {
			continue
		}
		whole = false // one changed since the look: delete the others without it
		fewer, _, err := x.lookAtRest(ctx, f, next.keys)
		if err != nil || fewer == nil || len(fewer.gone) == len(next.keys) {
			return whole, err
		}
		if _, err := x.takeRest(ctx, f, fewer, whole, last); err != nil {
			return whole, err
		}
	}
	return whole, nil
}

func (x *pass) leftRest(ctx context.Context, f *finding) (went bool, err error) {
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		went, err = x.Client().HExists(ctx, restsKey(x.Layout(), x.r.Rule), f.name()).Result()
		return err
	})
	return went, err
}

// lookAtRest looks at some related keys of a deleted candidate, or returns nil if none may be
// deleted. Changed ones are left to be found without their parent.
func (x *pass) lookAtRest(ctx context.Context, f *finding, keys []string) (*finding, clocks, error) {
	c := f.candidate
	c.alone, c.part, c.related = true, true, keys
	if c.rest == nil {
		c.rest = &rest{Meaning: x.meaning, Values: rawValues(f.values)}
	}
	found, clocks, err := x.lookLast(ctx, []*candidate{&c})
	if err != nil {
		return nil, nil, err
	}
	later := found[0]
	if later.verdict != condemned {
		return nil, nil, nil
	}
	was, is := f.byKey(), later.byKey()
	var others []string
	later.gone = slices.DeleteFunc(later.gone, func(key string) bool {
		same := slices.EqualFunc(was[key], is[key], func(a, b observation) bool {
			return a.answer == b.answer && slices.Equal(a.args, b.args)
		})
		if !same {
			others = append(others, key)
		}
		return !same
	})
	later.observations = later.without(others)
	if len(later.gone) == 0 {
		return nil, nil, nil
	}
	return later, clocks, nil
}

type script struct {
	items   []string
	keys    []string
	cost, n int
	follows int
}

// add sends the script first if both are too much for one.
func (x *pass) add(ctx context.Context, s *script, f *finding, next move) error {
	each := 1
	if x.Bin > 0 {
		each = binCost
	}
	c := cost(next.seen) + each*len(next.keys)
	if len(s.items) > 0 && (s.cost+c > stepCost || s.n+len(next.keys) > stepOf || len(s.items) >= x.BatchSize()) {
		if err := x.send(ctx, s); err != nil {
			return err
		}
	}
	if len(s.items) == 0 {
		next.Premises, s.keys = asked(x.premises, s.keys)
		s.cost += cost(x.premises)
	}
	next.Seen, s.keys = asked(next.seen, s.keys)
	next.Keys = raws(next.keys)
	text, err := json.Marshal(next.item)
	if err != nil {
		return fmt.Errorf("orphan: rule %q: %w", x.r.Rule, err)
	}
	s.items = append(s.items, string(text))
	s.cost, s.n = s.cost+c, s.n+len(next.keys)
	if next.Follows {
		s.follows++
	}
	return nil
}

func (x *pass) send(ctx context.Context, s *script) error {
	if len(s.items) == 0 {
		return nil
	}
	sent := *s
	*s = script{}
	slices.Sort(sent.keys)
	layout, rule := x.Layout(), x.r.Rule
	own := []string{
		marksKey(layout, rule), restsKey(layout, rule), binnedKey(layout, rule), dropsKey(layout, rule),
		stateKey(layout, rule),
	}
	answer, err := x.Pass.Delete(ctx, janitor.Batch{
		Body: deleteBody, Keys: append(own, slices.Compact(sent.keys)...), Items: sent.items,
		Deleted: func(a guard.Answer) { x.set.removed(x.rule, a) },
	})
	x.AddCondemned(-sent.follows) // counted with their candidate
	if err != nil {
		return err
	}
	if answer.Reason == heldLost {
		return x.holdLost() // the script has recorded it
	}
	things, _ := strconv.Atoi(answer.Reason)
	x.r.Removed += answer.Deleted
	x.r.Keys += things
	x.r.Kept[changed] += answer.Reowned
	return nil
}

func (x *pass) holdLost() error {
	return x.hold(heldLost, "a place that the rule relies on went away during the pass")
}

func (r *rule) removal() string {
	switch {
	case r.Members.ZSet != "":
		return "ZREM"
	case r.Members.Set != "":
		return "SREM"
	}
	return "HDEL"
}

// asked returns observations in delete.lua's format, and adds their keys to the script's.
func asked(seen []observation, keys []string) ([][]raw, []string) {
	all := make([][]raw, len(seen))
	for i, o := range seen {
		all[i] = append([]raw{raw(o.answer)}, raws(o.args)...)
		if o.args[0] != "PUBSUB" {
			keys = append(keys, o.args[1])
		}
	}
	return all, keys
}
