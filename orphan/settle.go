package orphan

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

type settlement struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Away   bool   `json:"away,omitempty"`
	Counts int    `json:"counts"`
	Entry  *raw   `json:"entry,omitempty"`
	Until  int64  `json:"until"`
	Forget bool   `json:"forget,omitempty"`
}

func (x *pass) settle(ctx context.Context, intents []intent, went map[string]bool) error {
	stays := map[string]bool{}
	for _, i := range intents {
		stays[i.Name] = stays[i.Name] || i.Related && !went[i.ID]
	}
	for part := range slices.Chunk(intents, min(reapOf, x.BatchSize())) {
		var items []string
		for _, i := range part {
			s := settlement{ID: i.ID, Name: i.Name, Away: went[i.ID], Counts: i.Counts}
			// Either the candidate stays and will be looked at again, or nothing is left.
			s.Forget = !s.Away && !i.Related || i.Last && s.Away && !stays[i.Name]
			if s.Away { // without a bin, the end of the pass drops it
				entry, until, err := i.binned(x.Bin, x.set.evidence)
				if err != nil {
					return err
				}
				text := raw(entry)
				s.Entry, s.Until = &text, until
			}
			if !s.Away && !i.Related {
				x.r.Kept[changed]++
			}
			text, err := json.Marshal(s)
			if err != nil {
				return fmt.Errorf("orphan: settle %s: %w", rules.Spell(string(i.Key)), err)
			}
			items = append(items, string(text))
		}
		if err := x.settleSome(ctx, items); err != nil {
			return err
		}
	}
	return nil
}

func (x *pass) settleSome(ctx context.Context, items []string) error {
	layout, rule := x.Layout(), x.r.Rule
	answer, err := x.Pass.Delete(ctx, janitor.Batch{
		Body: settleBody,
		Keys: []string{
			intentsKey(layout, rule), restsKey(layout, rule), binnedKey(layout, rule), dropsKey(layout, rule),
		},
		Items:   items,
		Deleted: func(a guard.Answer) { x.set.removed(x.rule, a) },
	})
	x.AddCondemned(-len(items)) // counted when they were intended
	if err != nil {
		return fmt.Errorf("orphan: settle: %w", err)
	}
	things, _ := strconv.Atoi(answer.Reason)
	x.r.Removed += answer.Deleted
	x.r.Keys += things
	return nil
}

func (x *pass) settleLeft(ctx context.Context) error {
	key := intentsKey(x.Layout(), x.r.Rule)
	byServer := map[*server][]intent{}
	err := eachField(ctx, x.Pass, key, func(id, text string) error {
		var i intent
		if err := json.Unmarshal([]byte(text), &i); err != nil {
			x.Log().Warn("intent cannot be read, and is left as it is", "rule", x.r.Rule, "key", key, "field", id, "error", err)
			return nil
		}
		if s := x.servers.at(string(i.Key)); s != nil {
			byServer[s] = append(byServer[s], i)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for s, intents := range byServer {
		for part := range slices.Chunk(intents, reapOf) {
			// Read the clock first: if it is past Until, a key found in place afterwards stays there.
			at, err := now(ctx, x.Pass, *s)
			if err != nil {
				return err
			}
			var cmds []redis.Cmder
			err = x.Call(ctx, func(ctx context.Context) (err error) {
				cmds, err = x.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
					for _, i := range part {
						pipe.Exists(ctx, string(i.Aside))
					}
					return nil
				})
				return err
			})
			if err != nil {
				return fmt.Errorf("orphan: intents of rule %q: %w", x.r.Rule, err)
			}
			went := map[string]bool{}
			var known []intent
			for n, i := range part {
				away := cmds[n].(*redis.IntCmd).Val() == 1
				if went[i.ID] = away; away || at.UnixMilli() > i.Until {
					i.Last = false
					known = append(known, i)
				}
			}
			if err := x.settle(ctx, known, went); err != nil {
				return err
			}
		}
	}
	return nil
}

// settleGone settles the intents of removed rules. Their bin periods are unknown, so moved keys
// stay for as long as Redis would keep them without an entry.
func (x *pass) settleGone(ctx context.Context) error {
	gone, err := x.rulesGone(ctx)
	if err != nil {
		return err
	}
	for _, name := range gone {
		r := &rule{Rule: rules.Rule{Name: name, Bin: awayFor}.WithDefaults()}
		y := &pass{
			sweep: &sweep{rule: r, set: x.set}, Pass: x.Pass, servers: x.servers, home: x.home,
			r: &Result{Rule: name, Kept: map[string]int{}},
		}
		if err := y.settleLeft(ctx); err != nil {
			return err
		}
	}
	return nil
}
