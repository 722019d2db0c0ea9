package orphan

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

//go:embed ripe.lua
var ripeText string

//go:embed delete.lua
var deleteText string

var deleteBody = guard.NewBody(sameText + ripeText + deleteText)

// reapOf is how many candidates one script judges at most: each costs it ten commands or so.
const reapOf = 50

// item is a candidate as delete.lua reads it.
type item struct {
	proof
	Seen     [][]string `json:"seen"`
	Keys     []string   `json:"keys"`
	Member   []string   `json:"member,omitempty"`
	Field    int64      `json:"field,omitempty"`
	Premises [][]string `json:"premises,omitempty"`
	Bin      int64      `json:"bin,omitempty"`
	Pass     int64      `json:"pass"`
}

// reap deletes the ripe, after one more look at each and at the references.
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
	if err := x.checkReferences(ctx, at); err != nil {
		return err
	}
	ripe := map[string]*candidate{}
	for _, name := range names {
		ripe[name] = x.ripe[name]
		ripe[name].related = nil
	}
	if err := x.findRelated(ctx, x.Pass, x.servers, ripe); err != nil {
		return err
	}
	for len(names) > 0 {
		n := min(len(names), reapOf, x.BatchSize())
		if err := x.reapSome(ctx, names[:n], ripe); err != nil || !x.r.Coverage.Complete {
			return err
		}
		names = names[n:]
	}
	return nil
}

func (x *pass) reapSome(ctx context.Context, names []string, ripe map[string]*candidate) error {
	var page []*candidate
	for _, name := range names {
		page = append(page, ripe[name])
	}
	clocks, err := x.clocks(ctx)
	if err != nil {
		return err
	}
	found, err := x.look(ctx, x.Pass, x.set.c.Source, x.home, page)
	if err != nil {
		return err
	}
	layout, rule := x.Layout(), x.r.Rule
	keys := []string{marksKey(layout, rule), binKey(layout, rule)}
	var unset []string
	same := slices.DeleteFunc(found, func(f *finding) bool {
		gone := f.verdict != condemned || f.fingerprint != x.notes.marks[f.name()].print
		if gone {
			x.r.Kept[changed]++
			unset = append(unset, f.name())
		}
		return gone
	})
	if err := x.note(ctx, nil, unset); err != nil || len(same) == 0 {
		return err
	}
	if x.servers.owner != nil {
		return x.remotely(ctx, same, clocks)
	}
	var items []string
	for _, f := range same {
		it := item{proof: x.proofOf(f), Keys: f.gone, Bin: x.Bin.Milliseconds(), Pass: x.began.UnixMilli()}
		if it.Keys == nil {
			it.Keys = []string{}
		}
		if f.member != "" && !f.alone {
			it.Member, it.Field = []string{x.removal(), f.key, f.member}, f.expires
		}
		if len(items) == 0 {
			it.Premises, keys = asked(x.premises, keys)
		}
		it.Seen, keys = asked(f.observations, keys)
		text, err := json.Marshal(it)
		if err != nil {
			return fmt.Errorf("orphan: rule %q: %w", rule, err)
		}
		items = append(items, string(text))
	}
	slices.Sort(keys[2:])
	answer, err := x.Pass.Delete(ctx, janitor.Batch{
		Body: deleteBody, Keys: append(keys[:2:2], slices.Compact(keys[2:])...), Items: items,
		Deleted: func(a guard.Answer) { x.set.removed(x.rule, a) },
	})
	if err != nil {
		return err
	}
	if answer.Reason == heldLost {
		return x.lostMeanwhile(ctx, same[0])
	}
	things, _ := strconv.Atoi(answer.Reason)
	x.r.Removed += answer.Deleted
	x.r.Keys += things
	x.r.Kept[changed] += answer.Reowned
	return nil
}

// lostMeanwhile ends a pass during which a reference was lost.
func (x *pass) lostMeanwhile(ctx context.Context, f *finding) error {
	lost := map[string]string{lostAt: strconv.FormatInt(f.at.UnixMilli(), 10)}
	if err := note(ctx, x.Pass, stateKey(x.Layout(), x.r.Rule), lost, nil); err != nil {
		return err
	}
	return x.hold(heldLost, "a place that the rule relies on went away during the pass")
}

// removal is the command that removes a member.
func (r *rule) removal() string {
	switch {
	case r.Members.ZSet != "":
		return "ZREM"
	case r.Members.Set != "":
		return "SREM"
	}
	return "HDEL"
}

// asked are observations as delete.lua reads them; keys are the script's.
func asked(seen []observation, keys []string) ([][]string, []string) {
	all := make([][]string, len(seen))
	for i, o := range seen {
		all[i] = append([]string{o.answer}, o.args...)
		if o.args[0] != "PUBSUB" {
			keys = append(keys, o.args[1])
		}
	}
	return all, keys
}
