package registry

import (
	"context"
	"errors"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

// batcherMost bounds what a batcher holds, in full batches: a thousand dead owners with an entry
// each on every page should neither be deleted one by one nor be kept until the end.
const batcherMost = 20

// batcher collects condemned entries by owner and has them deleted in full batches. An owner that
// turns out to live, or that cannot be swept, is left alone from then on.
type batcher struct {
	p       *janitor.Pass
	evicted func(owner string, n int)
	items   map[string]*ownerEntries
	held    int
	left    map[string]bool // owners left alone
	told    map[string]bool // owners whose index is left alone, as the log says

	condemned, unreadable int
}

// ownerEntries is what one owner left, in the order in which the scan met it: Redis deletes fastest
// so. Scans repeat themselves, batches must not.
type ownerEntries struct {
	imeis []string
	seen  map[string]struct{}
}

func newBatcher(p *janitor.Pass, evicted func(owner string, n int)) *batcher {
	return &batcher{
		p: p, evicted: evicted,
		items: map[string]*ownerEntries{}, left: map[string]bool{}, told: map[string]bool{},
	}
}

// add takes an entry, and has a batch deleted that is full now.
func (b *batcher) add(ctx context.Context, owner, imei string) error {
	if b.left[owner] {
		return nil
	}
	own := b.items[owner]
	if own == nil {
		own = &ownerEntries{seen: make(map[string]struct{})}
		b.items[owner] = own
	}
	if _, again := own.seen[imei]; again {
		return nil
	}
	own.seen[imei] = struct{}{}
	own.imeis = append(own.imeis, imei)
	b.held++
	if len(own.imeis) >= b.p.BatchSize() {
		return b.delete(ctx, owner)
	}
	if b.held >= batcherMost*b.p.BatchSize() {
		return b.flush(ctx)
	}
	return nil
}

// flush has everything deleted that is left.
func (b *batcher) flush(ctx context.Context) error {
	for owner := range b.items {
		if err := b.delete(ctx, owner); err != nil {
			return err
		}
	}
	return nil
}

// delete has one owner's entries deleted: at most a batch, since add saw to it.
func (b *batcher) delete(ctx context.Context, owner string) error {
	imeis := b.items[owner].imeis
	delete(b.items, owner)
	b.held -= len(imeis)
	b.condemned += len(imeis)
	a, err := b.p.Delete(ctx, janitor.Batch{
		Owner:   owner,
		Body:    EvictEntries,
		Keys:    EntryKeys(b.p.Layout(), owner),
		Items:   imeis,
		Deleted: func(n int) { b.evicted(owner, n) },
	})
	switch {
	case errors.Is(err, janitor.ErrRefused):
		// A key of another type, or a right that is missing: it keeps this owner, not the pass.
		b.p.Skip(janitor.SkipUnreadable, len(imeis))
		b.unreadable += len(imeis)
		b.left[owner] = true
		return nil
	case err == nil && a.Verdict == guard.Alive:
		b.left[owner] = true
	case err == nil && a.Reason != "" && !b.told[owner]:
		b.told[owner] = true
		b.p.Log().Warn("entries of a dead owner go, and its index is left alone: look at that key",
			"owner", owner, "key", b.p.Layout().Devices(owner), "why", a.Reason)
	}
	return err
}
