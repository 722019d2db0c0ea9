package orphan

import (
	"cmp"
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
	"github.com/rollcall-redis/rollcall/janitor/intent"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Ripe candidates go in one way, on one server and on a Cluster: after a last look the guard's
// server notes an intent for each, see package intent. The key's own server compares every answer
// that it has itself, and moves the key aside in the same step. The guard's settles and counts, and
// what needs no bin is dropped. On one server that step compares all, the worker's own keys too.

var (
	//go:embed intend.lua
	intendText string
	//go:embed away.lua
	awayText string
	//go:embed settle.lua
	settleText string

	intendBody = guard.NewBody(proof.Lua + intendText)
	settleBody = guard.NewBody(settleText)
)

const (
	reapOf = 50
	// of one pipeline, during which the server serves nobody else: µs, estimated
	pipelineCost = 1500
	takeCost     = 40
	// how long a look counts on a Cluster, by the clock of the key's server
	evidenceFor = 2 * time.Second
	// added to a moved key's time in the bin, in case home forgets it and nobody settles or drops it
	awayFor = 7 * 24 * time.Hour
)

// intended is the stored form of an intent.
type intended struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Key   raw    `json:"key"`
	Aside raw    `json:"aside"`
	Entry raw    `json:"entry,omitempty"` // of the bin; missing: it stays
	Until int64  `json:"until"`
	Last  int64  `json:"last"` // ms, by the key's server, at which the look still counts
}

// An item is a candidate that is to go.
type item struct {
	intended
	proof proof.Proof
	life  string   // run id of the key's server
	keys  []string // that the script reads
	cost  int
	step  struct {
		Seen   [][]raw `json:"seen"`
		Member []raw   `json:"member,omitempty"` // command that removes it
	}
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
	clocks := map[string]time.Time{} // of the servers, by address
	for _, s := range x.servers.masters {
		at, err := now(ctx, x.Pass, s)
		if err != nil {
			return err
		}
		clocks[s.addr] = at
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
		if f.verdict != condemned || f.fingerprint != x.Mark(f.name()).Print {
			x.r.Kept[changed]++
			unset = append(unset, f.name())
		} else if it, ok := x.itemOf(f, clocks); ok {
			items = append(items, it)
		} else {
			x.r.Kept[unknown]++
		}
	}
	if err := x.Unmark(ctx, unset...); err != nil || len(items) == 0 {
		return err
	}
	return x.take(ctx, items)
}

// itemOf returns false if the key has no name in the bin in its own slot, or its server is away.
func (x *pass) itemOf(f *finding, clocks map[string]time.Time) (it item, ok bool) {
	it = item{proof: x.Proof(f.name(), x.graceOf(f), f.at), cost: takeCost}
	it.ID, it.Name, it.Key = x.newID(), f.name(), raw(f.key)
	it.Aside = raw(aside(it.ID, f.key))
	s := x.servers.at(f.key)
	if s == nil || !x.servers.together(string(it.Aside), f.key) {
		return it, false
	}
	it.life, it.Last = s.life, clocks[s.addr].UnixMilli()+it.proof.Expires
	if x.servers.owner != nil {
		it.Last = clocks[s.addr].Add(x.set.evidence).UnixMilli()
	}
	it.step.Member = x.removal(f)
	it.Until = f.at.Add(x.Bin).UnixMilli()
	e := binned{
		ID: it.ID, Name: it.Name, Key: it.Key, Aside: it.Aside, Expires: f.expires,
		At: f.at.UnixMilli(), Pass: x.Book.Now().UnixMilli(), Until: it.Until,
	}
	if m := it.step.Member; m != nil {
		e.Member, e.By, e.KeyExpires = &m[2], string(m[0]), f.keyExpires
	}
	it.Entry = raw(jsonOf(e))
	for _, o := range slices.Concat(f.observations, x.premises, x.standing(it.ID)) {
		keys := o.keys()
		if x.servers.owner != nil && (keys == nil || !x.servers.together(keys[0], f.key)) {
			continue // the last look has to do
		}
		it.step.Seen = append(it.step.Seen, append([]raw{raw(o.answer)}, raws(o.args)...))
		it.keys, it.cost = append(it.keys, keys...), it.cost+o.cost
	}
	return it, true
}

// standing returns what must hold in the worker's own keys while an intent is carried out: the
// intent is stored, there was no hold, and no other pass of the rule has begun.
func (x *pass) standing(id string) []observation {
	l := x.Layout()
	return []observation{
		{[]string{"HEXISTS", intentsKey(l, x.r.Rule), id}, ":1", askCost},
		{[]string{"HGET", l.Witness(), "since"}, valueText(strconv.FormatInt(x.Listened().UnixMilli(), 10)), askCost},
		{[]string{"HGET", stateKey(l, x.r.Rule), "looked"}, valueText(x.State("looked")), askCost},
	}
}

// jsonOf is for structs of texts and numbers, which cannot fail.
func jsonOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func (s *Set) intents(l guard.Layout, rule string) intent.List {
	return intent.List{
		Key: intentsKey(l, rule), Note: intendBody, Settle: settleBody,
		NoteKeys:   []string{marksKey(l, rule), stateKey(l, rule), intentsKey(l, rule)},
		SettleKeys: []string{intentsKey(l, rule), binnedKey(l, rule), dropsKey(l, rule)},
	}
}

func (x *pass) take(ctx context.Context, items []item) error {
	if ok, err := x.stillThere(ctx); err != nil || !ok {
		return err
	}
	notes := make([]intent.Item, len(items))
	for i, it := range items {
		notes[i] = intent.Item{ID: it.ID, Text: jsonOf(struct {
			proof.Proof
			ID     string `json:"id"`
			Intent raw    `json:"intent"`
		}{it.proof, it.ID, raw(jsonOf(it.intended))})}
	}
	noted, err := x.set.intents(x.Layout(), x.r.Rule).Record(ctx, x.Pass, notes)
	if err != nil {
		return err
	}
	x.r.Kept[changed] += len(items) - len(noted)
	items = slices.DeleteFunc(items, func(it item) bool { return !noted[it.ID] })
	went, err := x.moveAway(ctx, items)
	if err != nil {
		x.Broken(ctx) // it may have found that a place was lost
		return err
	}
	all := make([]intended, len(items))
	stayed := false
	for i, it := range items {
		all[i], stayed = it.intended, stayed || !went[it.ID]
	}
	if err := x.settle(ctx, all, went); err != nil || !stayed {
		return err
	}
	_, err = x.stillThere(ctx)
	return err
}

// stillThere asks for what the key's server may not have: whether any server was restarted since
// the look, and the places that the rule relies on.
func (x *pass) stillThere(ctx context.Context) (bool, error) {
	var later *topology
	err := x.Call(ctx, func(ctx context.Context) (err error) {
		later, err = masters(ctx, x.Client(), againTimeout)
		return err
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

func (x *pass) moveAway(ctx context.Context, items []item) (went map[string]bool, err error) {
	went = map[string]bool{}
	for len(items) > 0 {
		var calls []question
		for cost := 0; len(items) > 0 && (len(calls) == 0 || cost+items[0].cost <= pipelineCost); items = items[1:] {
			it := items[0]
			keys := append([]string{string(it.Key), string(it.Aside)}, it.keys...)
			args := []string{strconv.FormatInt(it.Last, 10), strconv.FormatInt((x.Bin + awayFor).Milliseconds(), 10), it.life, jsonOf(it.step)}
			cost += it.cost
			calls = append(calls, question{args: slices.Concat([]string{strconv.Itoa(len(keys))}, keys, args), told: func(answer *redis.Cmd) {
				said, failed := answer.Int()
				if went[it.ID] = said == 1; failed != nil {
					err = cmp.Or(err, fmt.Errorf("orphan: %s: %w", rules.Spell(string(it.Key)), failed))
				}
			}})
		}
		failed := call(ctx, x.Pass, awayScript, calls)
		if failed = cmp.Or(failed, err); failed != nil {
			return nil, failed
		}
	}
	return went, nil
}

// awayScript is away.lua with what it needs.
var awayScript = sameText + awayText

func (x *pass) settle(ctx context.Context, all []intended, went map[string]bool) error {
	texts := make([]string, len(all))
	for i, it := range all {
		if !went[it.ID] {
			it.Entry = ""
			x.r.Kept[changed]++
		}
		texts[i] = jsonOf(it)
	}
	answers, err := x.set.intents(x.Layout(), x.r.Rule).End(ctx, x.Pass, texts,
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
	var known []intended
	went := map[string]bool{}
	for it, err := range intent.Left[intended](ctx, x.Pass, key, unread) {
		if err != nil {
			return err
		}
		s := x.servers.at(string(it.Key))
		if s == nil {
			continue
		}
		// Read the clock first: if it is past Last, a key found in place afterwards stays there.
		at, err := now(ctx, x.Pass, *s)
		if err != nil {
			return err
		}
		away := int64(0)
		err = x.Call(ctx, func(ctx context.Context) (err error) {
			away, err = x.Client().Exists(ctx, string(it.Aside)).Result()
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
