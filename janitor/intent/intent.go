// Package intent is for what a sweep decides under the guard and carries out elsewhere: on another
// server of a Cluster, or in a database. There the guard cannot be asked in one step with the deed.
// So the intent is noted under the guard, carried out within a bounded time or never, and settled
// under the guard, which counts it once, whatever dies in between:
//
//	noted, err := list.Record(ctx, p, intents)     // those that the guarded body took
//	... carry out, by the clock of the server that does it, until Intent.Until ...
//	err = list.End(ctx, p, settlements, nil)
//
// A later pass finds what an earlier one left with Left, on whichever replica it runs: it settles
// what was carried out, and drops what no longer can be.
package intent

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
)

// A List is a hash of intents, id -> text, in the slot of the eviction log. The texts are the
// sweep's own.
type List struct {
	Key string
	// Note is a guarded body that judges its items again and writes those that stand into the hash.
	// Settle is one that takes intents out, and records what was done. Their keys follow the guard's.
	Note, Settle         *guard.Body
	NoteKeys, SettleKeys []string
}

// An Item is one intent for Note, with the id that it has in the hash.
type Item struct{ ID, Text string }

// Record notes intents under the guard, and returns the ids of those that the body accepted.
func (l List) Record(ctx context.Context, p *janitor.Pass, items []Item) (noted map[string]bool, err error) {
	noted = map[string]bool{}
	for len(items) > 0 {
		some := items[:min(len(items), p.BatchSize())]
		items = items[len(some):]
		texts, ids := make([]string, len(some)), make([]string, len(some))
		for i, one := range some {
			texts[i], ids[i] = one.Text, one.ID
		}
		answer, err := p.Delete(ctx, janitor.Batch{Body: l.Note, Keys: l.NoteKeys, Items: texts})
		if err != nil {
			return nil, fmt.Errorf("intent: note: %w", err)
		}
		stands := slices.Repeat([]any{""}, len(ids))
		if answer.Reowned > 0 {
			err = p.Call(ctx, func(ctx context.Context) (err error) {
				stands, err = p.Client().HMGet(ctx, l.Key, ids...).Result()
				return err
			})
		}
		if err != nil {
			return nil, fmt.Errorf("intent: %s: %w", l.Key, err)
		}
		for i, id := range ids {
			if stands[i] != nil {
				noted[id] = true
			}
		}
	}
	return noted, nil
}

// End has the guard settle intents: texts for Settle's body. They were counted as condemned
// when they were noted. deleted is called for each batch, once its fate is known.
func (l List) End(
	ctx context.Context, p *janitor.Pass, texts []string, deleted func(guard.Answer),
) (answers []guard.Answer, err error) {
	for len(texts) > 0 {
		some := texts[:min(len(texts), p.BatchSize())]
		texts = texts[len(some):]
		answer, err := p.Delete(ctx, janitor.Batch{Body: l.Settle, Keys: l.SettleKeys, Items: some, Deleted: deleted})
		p.AddCondemned(-len(some))
		if err != nil {
			return answers, fmt.Errorf("intent: settle: %w", err)
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

// Left reads the intents that stand, whoever noted them. unread gets those that are none.
func Left[T any](
	ctx context.Context, p *janitor.Pass, key string, unread func(id, text string, err error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for field, err := range proof.Fields(ctx, p, key) {
			var one T
			if err != nil {
				yield(one, err)
				return
			}
			if err := json.Unmarshal([]byte(field.Value), &one); err != nil {
				unread(field.Name, field.Value, err)
				continue
			}
			if !yield(one, nil) {
				return
			}
		}
	}
}
