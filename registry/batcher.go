package registry

import (
	"context"
	"errors"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/janitor"
)

// batcherMost bounds the entries that a batcher holds, in full batches. A thousand dead owners with
// one entry each on every page should neither be deleted one by one nor kept until the end.
const batcherMost = 20

const toldMost = 100

// batcher collects condemned entries by owner and deletes them in full batches. It leaves an owner
// alone once that turns out to be alive or cannot be swept.
type batcher struct {
	*sweeps
	p *janitor.Pass
	// Each owner's entries, in the order of the scan, in which Redis deletes fastest. Scans may
	// repeat entries; the guard removes duplicates.
	imeis map[string][]string
	held  int
	left  map[string]bool // owners to leave alone, at most metMost
	told  map[string]bool // owners whose unusable index has been logged, at most toldMost

	condemned int
	whole     bool // the index will be deleted as a whole; batches leave it alone
}

func newBatcher(s *sweeps, p *janitor.Pass) *batcher {
	return &batcher{
		sweeps: s, p: p,
		imeis: map[string][]string{}, left: map[string]bool{}, told: map[string]bool{},
	}
}

func (b *batcher) add(ctx context.Context, owner, imei string) error {
	if b.left[owner] {
		return nil
	}
	b.imeis[owner] = append(b.imeis[owner], imei)
	b.held++
	if len(b.imeis[owner]) >= b.p.BatchSize() {
		return b.delete(ctx, owner)
	}
	if b.held >= batcherMost*b.p.BatchSize() {
		return b.flush(ctx)
	}
	return nil
}

func (b *batcher) flush(ctx context.Context) error {
	for owner := range b.imeis {
		if err := b.delete(ctx, owner); err != nil {
			return err
		}
	}
	return nil
}

func (b *batcher) delete(ctx context.Context, owner string) error {
	imeis := b.imeis[owner]
	delete(b.imeis, owner)
	b.held -= len(imeis)
	b.condemned += len(imeis)
	keys := EntryKeys(b.p.Layout(), owner)
	if b.whole {
		keys = keys[:1]
	}
	a, err := b.p.Delete(ctx, janitor.Batch{
		Owner:   owner,
		Body:    EvictEntries,
		Keys:    keys,
		Items:   imeis,
		Deleted: func(a guard.Answer) { b.evicted(owner, a.Deleted) },
	})
	switch {
	case errors.Is(err, janitor.ErrRefused):
		// A key of another type, or a missing right, affects this owner only, not the pass.
		b.p.Skip(janitor.SkipUnreadable, len(imeis))
		b.leave(owner)
		b.refused.note(b.p.Log(), owner, err)
		return nil
	case err != nil || b.p.DryRun():
		return err
	case a.Verdict == guard.Alive:
		b.leave(owner)
		return nil
	}
	b.refused.note(b.p.Log(), owner, nil)
	if a.Reason != "" && a.Deleted > 0 && !b.told[owner] && len(b.told) < toldMost {
		b.told[owner] = true
		b.p.Log().Warn("evicted entries but left the index alone: check that key",
			"owner", owner, "key", b.p.Layout().Devices(owner), "reason", a.Reason)
	}
	return nil
}

func (b *batcher) leave(owner string) {
	if len(b.left) >= metMost {
		clear(b.left)
	}
	b.left[owner] = true
}
