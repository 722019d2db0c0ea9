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

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// Ripe candidates go in one way, on one server and on a Cluster: after a last look the guard's
// server notes an intent for each, which the key's own server carries out within seconds or never.
// It compares every answer that it has itself, and moves the key aside in the same step. The
// guard's settles and counts, and what needs no bin is dropped. On one server that step compares
// all, the worker's own keys too.

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

// An item is a candidate that is to go.
type item struct {
	binned
	proof  proof.Proof
	life   string   // run id of the key's server
	keys   []string // that the script reads: the candidate's, its name aside, and others
	member string
	seen   []string // the observations that it compares
	cost   int
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
	it = item{proof: x.Proof(f.name(), x.graceOf(f), f.at), cost: takeCost, member: f.member}
	id := x.newID()
	it.keys = []string{f.key, aside(id, f.key)}
	s := x.servers.at(f.key)
	if s == nil || !x.servers.together(it.keys[1], f.key) {
		return it, false
	}
	at := clocks[s.addr]
	last := at.Add(time.Duration(it.proof.Expires) * time.Millisecond)
	if x.servers.owner != nil {
		last = at.Add(x.set.evidence)
	}
	it.life = s.life
	it.binned = binned{
		ID: id, Name: f.name(), Key: rules.Spell(f.key), Member: rules.Spell(f.member), By: x.removal(),
		Aside: rules.Spell(it.keys[1]), Expires: f.expires, KeyExpires: f.keyExpires, At: f.at.UnixMilli(),
		Pass: x.Book.Now().UnixMilli(), Until: f.at.Add(x.Bin).UnixMilli(), Last: last.UnixMilli(),
	}
	for _, o := range slices.Concat(f.observations, x.premises, x.standing(id)) {
		keys := o.keys()
		if x.servers.owner != nil && (keys == nil || !x.servers.together(keys[0], f.key)) {
			continue // the last look has to do
		}
		it.seen = append(append(it.seen, strconv.Itoa(1+len(o.args)), o.answer), o.args...)
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

func (x *pass) take(ctx context.Context, items []item) error {
	if ok, err := x.stillThere(ctx); err != nil || !ok {
		return err
	}
	items, err := x.note(ctx, items)
	if err != nil {
		return err
	}
	went, err := x.moveAway(ctx, items)
	if err != nil {
		x.Broken(ctx) // it may have found that a place was lost
		return err
	}
	all := make([]binned, len(items))
	stayed := false
	for i, it := range items {
		all[i], stayed = it.binned, stayed || !went[it.ID]
	}
	if err := x.settle(ctx, all, went); err != nil || !stayed {
		return err
	}
	_, err = x.stillThere(ctx)
	return err
}

// note has the guard write intents, and returns the items that it accepted.
func (x *pass) note(ctx context.Context, items []item) ([]item, error) {
	l, texts, ids := x.Layout(), make([]string, len(items)), make([]string, len(items))
	for i, it := range items {
		ids[i], texts[i] = it.ID, jsonOf(struct {
			proof.Proof
			ID     string `json:"id"`
			Intent string `json:"intent"`
		}{it.proof, it.ID, jsonOf(it.binned)})
	}
	keys := []string{marksKey(l, x.r.Rule), stateKey(l, x.r.Rule), intentsKey(l, x.r.Rule)}
	answer, err := x.Delete(ctx, janitor.Batch{Body: intendBody, Keys: keys, Items: texts})
	if err != nil || answer.Reowned == 0 {
		return items, err
	}
	var stand []any
	err = x.Call(ctx, func(ctx context.Context) (err error) {
		stand, err = x.Client().HMGet(ctx, keys[2], ids...).Result()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("orphan: intents of rule %q: %w", x.r.Rule, err)
	}
	x.r.Kept[changed] += answer.Reowned
	return slices.DeleteFunc(items, func(it item) bool { return stand[slices.Index(ids, it.ID)] == nil }), nil
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
			expires := strconv.FormatInt((x.Bin + awayFor).Milliseconds(), 10)
			args := []string{strconv.FormatInt(it.Last, 10), expires, it.life, x.removal(), it.member}
			cost += it.cost
			calls = append(calls, question{
				args: slices.Concat([]string{strconv.Itoa(len(it.keys))}, it.keys, args, it.seen),
				told: func(answer *redis.Cmd) {
					said, failed := answer.Int()
					if went[it.ID] = said == 1; failed != nil {
						err = cmp.Or(err, fmt.Errorf("orphan: %s: %w", it.Key, failed))
					}
				},
			})
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

// settle has the guard end intents, and counts each delete once.
func (x *pass) settle(ctx context.Context, all []binned, went map[string]bool) error {
	l := x.Layout()
	batch := janitor.Batch{
		Body: settleBody, Keys: []string{intentsKey(l, x.r.Rule), binnedKey(l, x.r.Rule), dropsKey(l, x.r.Rule)},
		Deleted: func(a guard.Answer) { x.set.removed(x.r.Rule, a.Deleted) },
	}
	for part := range slices.Chunk(all, x.BatchSize()) {
		batch.Items = nil
		for _, b := range part {
			end := struct {
				ID    string `json:"id"`
				Name  string `json:"name"`
				Until int64  `json:"until"`
				Entry string `json:"entry,omitempty"`
			}{ID: b.ID, Name: b.Name, Until: b.Until}
			if went[b.ID] {
				end.Entry = jsonOf(b)
			} else {
				x.r.Kept[changed]++
			}
			batch.Items = append(batch.Items, jsonOf(end))
		}
		answer, err := x.Delete(ctx, batch)
		x.AddCondemned(-len(part)) // they were counted when they were noted
		if err != nil {
			return err
		}
		x.r.Removed += answer.Deleted
	}
	return nil
}

// settleLeft settles what an earlier pass left: it was carried out, or no longer can be.
func (x *pass) settleLeft(ctx context.Context) error {
	key := intentsKey(x.Layout(), x.r.Rule)
	var known []binned
	went := map[string]bool{}
	for field, err := range proof.Fields(ctx, x.Pass, key) {
		if err != nil {
			return err
		}
		var it binned
		if err := json.Unmarshal([]byte(field.Value), &it); err != nil {
			x.Log().Warn("intent cannot be read, and is left as it is", "rule", x.r.Rule, "key", key, "field", field.Name, "error", err)
			continue
		}
		s := x.servers.at(rules.Unspell(it.Key))
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
			away, err = x.Client().Exists(ctx, rules.Unspell(it.Aside)).Result()
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
