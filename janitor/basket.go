package janitor

import (
	"context"
	"errors"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/registry"
)

// basketBatches bounds what a basket holds, in full batches: a thousand dead owners with an entry
// each on every page should neither be reaped one by one nor be kept until the end.
const basketBatches = 20

// basket collects condemned entries by owner and reaps them in full batches. An owner that turns out to live,
// or that cannot be swept, is left alone from then on.
type basket struct {
	p     *Pass
	items map[string]*pile // by owner
	held  int
	left  map[string]bool // owners left alone
	told  map[string]bool // owners whose index is left alone, as the log says
}

// pile is what one owner left, in the order in which the scan met it: Redis deletes fastest so. Scans repeat
// themselves, batches must not.
type pile struct {
	imeis []string
	seen  map[string]struct{}
}

func newBasket(p *Pass) *basket {
	return &basket{p: p, items: map[string]*pile{}, left: map[string]bool{}, told: map[string]bool{}}
}

// add takes an entry, and reaps what has become a full batch.
func (b *basket) add(ctx context.Context, owner, imei string) error {
	if b.left[owner] {
		return nil
	}
	own := b.items[owner]
	if own == nil {
		own = &pile{seen: make(map[string]struct{})}
		b.items[owner] = own
	}
	if _, again := own.seen[imei]; again {
		return nil
	}
	own.seen[imei] = struct{}{}
	own.imeis = append(own.imeis, imei)
	b.held++
	if len(own.imeis) >= b.p.BatchSize() {
		return b.reap(ctx, owner)
	}
	if b.held >= basketBatches*b.p.BatchSize() {
		return b.empty(ctx)
	}
	return nil
}

// empty reaps all that is left in the basket.
func (b *basket) empty(ctx context.Context) error {
	for owner := range b.items {
		if err := b.reap(ctx, owner); err != nil {
			return err
		}
	}
	return nil
}

// reap reaps one owner's entries: at most a batch, since add saw to it.
func (b *basket) reap(ctx context.Context, owner string) error {
	imeis := b.items[owner].imeis
	delete(b.items, owner)
	b.held -= len(imeis)
	layout := b.p.Layout()
	a, err := b.p.Reap(ctx, Batch{
		Owner: owner,
		Body:  registry.EvictEntries,
		Keys:  []string{layout.Registry(), layout.Devices(owner)},
		Items: imeis,
	})
	switch {
	case errors.Is(err, ErrRefused):
		// A key of another type, or a right that is missing: it keeps this owner, not the pass.
		b.p.Spared(SparedUnreadable, len(imeis))
		b.left[owner] = true
		return nil
	case err == nil && a.Verdict == guard.Alive:
		b.left[owner] = true
	case err == nil && a.Reason != "" && !b.told[owner]:
		b.told[owner] = true
		b.p.t.j.log.Warn("entries of a dead owner go, and its index is left alone: look at that key",
			"owner", owner, "key", layout.Devices(owner), "why", a.Reason)
	}
	return err
}
