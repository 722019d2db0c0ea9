package orphan

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/intent"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Ripe candidates are removed in one way: a last look, and an item with the steps for each, which
// hold only if nothing has changed since. Where the guard has all keys, one script checks and does
// it. On a Cluster it is three: the guard's server notes the items, the key's own moves it away
// within evidenceFor of the look, and the guard's settles and counts. Both have the same Lua parts.

var (
	//go:embed take.lua
	takeText string
	//go:embed reap.lua
	reapText string
	//go:embed intend.lua
	intendText string
	//go:embed away.lua
	awayText string
	//go:embed settle.lua
	settleText string

	reapBody   = guard.NewBody(proof.Lua + sameText + takeText + reapText)
	intendBody = guard.NewBody(proof.Lua + intendText)
	settleBody = guard.NewBody(settleText)
	awayScript = redis.NewScript(sameText + takeText + awayText)
)

const (
	reapOf = 50
	// of one script, which blocks the server: µs, estimated
	scriptCost = 1500
	takeCost   = 20
	// how long a look counts on a Cluster, by the clock of the key's server
	evidenceFor = 2 * time.Second
	// added to a moved key's time in the bin, in case home forgets it and nobody settles or drops it
	awayFor = 7 * 24 * time.Hour
)

// An item is a candidate that is to go. On a Cluster it is an intent.
type item struct {
	proof.Proof
	ID       string  `json:"id"`
	Key      raw     `json:"key"`
	Member   []raw   `json:"member,omitempty"` // command that removes it
	Aside    *raw    `json:"aside,omitempty"`  // missing: it is deleted
	Seen     [][]raw `json:"seen"`
	Premises [][]raw `json:"premises,omitempty"`
	Entry    raw     `json:"entry,omitempty"`
	Until    int64   `json:"until,omitempty"`
	Last     int64   `json:"last,omitempty"` // ms, by the key's server, at which the look still counts

	keys []string // that the script reads
	cost int
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

func (x *pass) reap(ctx context.Context) error {
	names := x.oldest()
	if len(names) == 0 {
		return nil
	}
	if x.r.DryRun {
		x.AddCondemned(len(names))
		x.lookAgain()
		return nil
	}
	at, err := now(ctx, x.Pass, x.home)
	if err != nil {
		return err
	}
	if err := x.checkReferences(ctx, at); err != nil {
		return err
	}
	for i, part := range slices.Collect(slices.Chunk(names, min(reapOf, x.BatchSize()))) {
		// The next pass must look at the others before their evidence ends.
		if i > 0 && time.Since(x.lookedAt) > x.apart()/2 {
			x.leave(len(part))
			continue
		}
		if err := x.reapSome(ctx, part); err != nil || !x.r.Coverage.Complete {
			return err
		}
	}
	return nil
}

// oldest returns what is ripe, at most Cap.
func (x *pass) oldest() []string {
	names := sorted(x.ripe)
	slices.SortStableFunc(names, func(a, b string) int { return x.Mark(a).At.Compare(x.Mark(b).At) })
	if len(names) > x.Cap {
		x.leave(len(names) - x.Cap)
		names = names[:x.Cap]
	}
	return names
}

func (x *pass) leave(n int) {
	if x.r.Kept[capped] += n; x.r.DryRun {
		x.lookAgain()
	} else {
		x.wake(0)
	}
}

func (x *pass) reapSome(ctx context.Context, names []string) error {
	clocks, err := x.clocks(ctx)
	if err != nil {
		return err
	}
	page := make([]*candidate, len(names))
	for i, name := range names {
		page[i] = x.ripe[name]
	}
	found, err := x.look(ctx, x.Pass, x.set.c.Source, x.home, page)
	if err != nil {
		x.Broken(ctx)
		return err
	}
	var items []item
	var unset []string
	for _, f := range found {
		if f.verdict == condemned && f.fingerprint == x.Mark(f.name()).Print {
			items = append(items, x.itemOf(f, clocks))
		} else {
			x.r.Kept[changed]++
			unset = append(unset, f.name())
		}
	}
	if err := x.Unmark(ctx, unset...); err != nil {
		return err
	}
	if x.servers.owner == nil {
		return x.takeHere(ctx, items)
	}
	return x.takeThere(ctx, items)
}

// clocks are the times of the servers, by address: only a Cluster's are needed.
func (x *pass) clocks(ctx context.Context) (map[string]time.Time, error) {
	all := map[string]time.Time{}
	for _, s := range x.servers.masters {
		if x.servers.owner == nil {
			break
		}
		at, err := now(ctx, x.Pass, s)
		if err != nil {
			return nil, err
		}
		all[s.addr] = at
	}
	return all, nil
}

func (x *pass) itemOf(f *finding, clocks map[string]time.Time) item {
	it := item{Proof: x.Proof(f.name(), x.graceOf(f), f.at), ID: x.newID(), Key: raw(f.key), Member: x.removal(f)}
	if s := x.servers.at(f.key); x.servers.owner != nil && s != nil {
		it.Last = clocks[s.addr].Add(x.set.evidence).UnixMilli()
	}
	if x.Bin > 0 || x.servers.owner != nil {
		name := raw(aside(it.ID, f.key))
		it.Aside = &name
		it.Entry, it.Until = x.entryOf(f, it)
	}
	it.cost = takeCost
	for _, o := range f.observations {
		if x.servers.owner != nil && (o.args[0] == "PUBSUB" || slot.Of(o.args[1]) != slot.Of(f.key)) {
			continue // the last look has to do
		}
		it.Seen = append(it.Seen, append([]raw{raw(o.answer)}, raws(o.args)...))
		it.keys = append(it.keys, keyOf(o)...)
		it.cost += o.cost
	}
	return it
}

func keyOf(o observation) []string {
	if o.args[0] == "PUBSUB" {
		return nil
	}
	return o.args[1:2]
}

// entryOf has all that Restore needs.
func (x *pass) entryOf(f *finding, it item) (text raw, until int64) {
	until = f.at.Add(x.Bin).UnixMilli()
	e := binned{
		ID: it.ID, Name: f.name(), Key: it.Key, Aside: *it.Aside, Expires: f.expires,
		At: f.at.UnixMilli(), Pass: x.Book.Now().UnixMilli(), Until: until,
	}
	if it.Member != nil {
		e.Member, e.By, e.KeyExpires = &it.Member[2], string(it.Member[0]), f.keyExpires
	}
	return raw(jsonOf(e)), until
}

// jsonOf is for structs of texts and numbers, which cannot fail.
func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// takeHere sends as many items as fit in one script.
func (x *pass) takeHere(ctx context.Context, items []item) error {
	for len(items) > 0 {
		layout, rule := x.Layout(), x.r.Rule
		keys, texts, cost := []string{}, []string{}, 0
		for _, it := range items {
			if len(texts) > 0 && cost+it.cost > scriptCost {
				break
			}
			if len(texts) == 0 {
				for _, o := range x.premises {
					it.Premises = append(it.Premises, append([]raw{raw(o.answer)}, raws(o.args)...))
					keys, cost = append(keys, keyOf(o)...), cost+o.cost
				}
			}
			keys, cost = append(keys, it.keys...), cost+it.cost
			if keys = append(keys, string(it.Key)); it.Aside != nil {
				keys = append(keys, string(*it.Aside))
			}
			texts = append(texts, jsonOf(it))
		}
		items = items[len(texts):]
		slices.Sort(keys)
		answer, err := x.Delete(ctx, janitor.Batch{
			Body: reapBody,
			Keys: slices.Concat([]string{marksKey(layout, rule), stateKey(layout, rule), binnedKey(layout, rule),
				dropsKey(layout, rule)}, slices.Compact(keys)),
			Items:   texts,
			Deleted: func(a guard.Answer) { x.set.removed(x.rule, a.Deleted) },
		})
		if err != nil {
			return err
		}
		if answer.Reason == heldLost {
			return x.holdLost(ctx)
		}
		x.r.Removed += answer.Deleted
		x.r.Kept[changed] += answer.Reowned
	}
	return nil
}

func (s *Set) noted(l guard.Layout, rule string) intent.List {
	return intent.List{
		Key: intentsKey(l, rule), Note: intendBody, Settle: settleBody,
		NoteKeys:   []string{marksKey(l, rule), stateKey(l, rule), intentsKey(l, rule)},
		SettleKeys: []string{intentsKey(l, rule), binnedKey(l, rule), dropsKey(l, rule)},
	}
}

func (x *pass) takeThere(ctx context.Context, items []item) error {
	items = slices.DeleteFunc(items, func(it item) bool {
		lost := it.Last == 0 || slot.Of(string(*it.Aside)) != slot.Of(string(it.Key)) // no new name in its slot
		if lost {
			x.r.Kept[unknown]++
		}
		return lost
	})
	if len(items) == 0 {
		return nil
	}
	if ok, err := x.stillThere(ctx); err != nil || !ok {
		return err
	}
	notes := make([]intent.Item, len(items))
	for i, it := range items {
		note := struct {
			proof.Proof
			ID     string `json:"id"`
			Intent raw    `json:"intent"`
		}{it.Proof, it.ID, raw(jsonOf(it))}
		notes[i] = intent.Item{ID: it.ID, Text: jsonOf(note)}
	}
	noted, err := x.set.noted(x.Layout(), x.r.Rule).Record(ctx, x.Pass, notes)
	if err != nil {
		return err
	}
	went := map[string]bool{}
	for _, it := range items {
		if !noted[it.ID] {
			x.r.Kept[changed]++
		} else if went[it.ID], err = x.moveAway(ctx, it); err != nil {
			return err
		}
	}
	return x.settle(ctx, slices.DeleteFunc(items, func(it item) bool { return !noted[it.ID] }), went)
}

// stillThere asks for what one server checks in the deleting script, after the last look: whether a
// server was restarted, and the places that the rule relies on.
func (x *pass) stillThere(ctx context.Context) (bool, error) {
	var later *topology
	err := x.Call(ctx, func(ctx context.Context) error {
		later = x.servers.again(ctx)
		return nil
	})
	if err != nil {
		return false, err
	}
	if err := x.servers.changed(later); err != nil {
		x.r.Coverage.Complete = false
		x.Log().Warn("servers have changed behind the last look, and nothing more goes", "rule", x.r.Rule, "error", err)
		return false, nil
	}
	for _, o := range x.premises {
		there := int64(0)
		err := x.Call(ctx, func(ctx context.Context) (err error) {
			there, err = x.Client().Exists(ctx, o.args[1]).Result()
			return err
		})
		if err != nil {
			return false, fmt.Errorf("orphan: references of rule %q: %w", x.r.Rule, err)
		}
		if there == 0 {
			return false, x.holdLost(ctx)
		}
	}
	return true, nil
}

func (x *pass) moveAway(ctx context.Context, it item) (went bool, err error) {
	keys := append([]string{string(it.Key), string(*it.Aside)}, it.keys...)
	said := 0
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		said, err = awayScript.Run(ctx, x.Client(), keys, it.Last, (x.Bin + awayFor).Milliseconds(), jsonOf(it)).Int()
		return err
	})
	if err != nil {
		return false, fmt.Errorf("orphan: %s: %w", rules.Spell(string(it.Key)), err)
	}
	return said == 1, nil
}

func (x *pass) settle(ctx context.Context, items []item, went map[string]bool) error {
	var texts []string
	for _, it := range items {
		if it.Seen = nil; !went[it.ID] {
			it.Entry = ""
			x.r.Kept[changed]++
		}
		texts = append(texts, jsonOf(struct {
			ID    string `json:"id"`
			Name  string `json:"name"`
			Entry raw    `json:"entry,omitempty"`
			Until int64  `json:"until"`
		}{it.ID, it.Name, it.Entry, it.Until}))
	}
	answers, err := x.set.noted(x.Layout(), x.r.Rule).End(ctx, x.Pass, texts,
		func(a guard.Answer) { x.set.removed(x.rule, a.Deleted) })
	for _, a := range answers {
		x.r.Removed += a.Deleted
	}
	return err
}

// settleLeft settles what an earlier pass left: it was carried out, or no longer can be.
func (x *pass) settleLeft(ctx context.Context) error {
	key := intentsKey(x.Layout(), x.r.Rule)
	unread := func(id, _ string, err error) {
		x.Log().Warn("intent cannot be read, and is left as it is", "rule", x.r.Rule, "key", key, "field", id, "error", err)
	}
	var known []item
	went := map[string]bool{}
	for it, err := range intent.Left[item](ctx, x.Pass, key, unread) {
		if err != nil {
			return err
		}
		s := x.servers.at(string(it.Key))
		if s == nil || it.Aside == nil {
			continue
		}
		// Read the clock first: if it is past Last, a key found in place afterwards stays there.
		at, err := now(ctx, x.Pass, *s)
		if err != nil {
			return err
		}
		away := int64(0)
		err = x.Call(ctx, func(ctx context.Context) (err error) {
			away, err = x.Client().Exists(ctx, string(*it.Aside)).Result()
			return err
		})
		if err != nil {
			return fmt.Errorf("orphan: intents of rule %q: %w", x.r.Rule, err)
		}
		if went[it.ID] = away == 1; went[it.ID] || at.UnixMilli() > it.Last {
			known = append(known, it)
		}
	}
	return x.settle(ctx, known, went)
}

// settleGone settles the intents of removed rules.
func (x *pass) settleGone(ctx context.Context) error {
	gone, err := x.rulesGone(ctx)
	for _, name := range gone {
		r := &rule{Rule: rules.Rule{Name: name}.WithDefaults()}
		y := &pass{
			sweep: &sweep{rule: r, set: x.set}, Pass: x.Pass, servers: x.servers, home: x.home,
			r: &Result{Rule: name, Kept: map[string]int{}},
		}
		if err := y.settleLeft(ctx); err != nil {
			return err
		}
	}
	return err
}
