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

// toldMost bounds the lines that one walk logs about keys of another type.
const toldMost = 100

// batcher collects condemned entries by owner and has them deleted in full batches. An owner that
// turns out to live, or that cannot be swept, is left alone from then on.
type batcher struct {
	*sweeps
	p *janitor.Pass
	// What each owner left, in the order in which the scan found it: Redis deletes fastest so. A scan
	// may repeat itself; the guard asks for an item of a batch once.
	imeis map[string][]string
	held  int
	left  map[string]bool // owners left alone, at most metMost
	told  map[string]bool // owners whose index is left alone, as the log says, at most toldMost

	condemned int
	whole     bool // the index goes as a whole: batches leave it as it is
}

func newBatcher(s *sweeps, p *janitor.Pass) *batcher {
	return &batcher{
		sweeps: s, p: p,
		imeis: map[string][]string{}, left: map[string]bool{}, told: map[string]bool{},
	}
}

// add takes an entry, and has a batch deleted that is full now.
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

// flush has everything deleted that is left.
func (b *batcher) flush(ctx context.Context) error {
	for owner := range b.imeis {
		if err := b.delete(ctx, owner); err != nil {
			return err
		}
	}
	return nil
}

// delete has one owner's entries deleted: at most a batch, since add saw to it.
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
		// A key of another type, or a right that is missing: it keeps this owner, not the pass.
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
		b.p.Log().Warn("entries of a dead owner go, and its index is left alone: check that key",
			"owner", owner, "key", b.p.Layout().Devices(owner), "reason", a.Reason)
	}
	return nil
}

// leave leaves an owner alone from now on. Among very many it may be tried once more.
func (b *batcher) leave(owner string) {
	if len(b.left) >= metMost {
		clear(b.left)
	}
	b.left[owner] = true
}
