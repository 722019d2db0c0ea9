package janitor

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// batcherMost bounds the entries that a batcher holds, in full batches. A thousand dead owners with
// one entry each on every page should neither be deleted one by one nor kept until the end.
const batcherMost = 20

const toldMost = 100

// batcher collects condemned entries by owner and deletes them in full batches. It leaves an owner
// alone once that turns out to be alive or cannot be swept.
type batcher struct {
	*entries
	p *Pass
	// Each owner's entries, in the order of the scan, in which Redis deletes fastest. Scans may
	// repeat entries; the guard removes duplicates.
	ids  map[string][]string
	held int
	left map[string]bool // owners to leave alone, at most leftMost
	told map[string]bool // owners whose unusable index has been logged, at most toldMost

	condemned int
	whole     bool // the index will be deleted as a whole; batches leave it alone
}

func newBatcher(s *entries, p *Pass) *batcher {
	return &batcher{
		entries: s, p: p,
		ids: map[string][]string{}, left: map[string]bool{}, told: map[string]bool{},
	}
}

func (b *batcher) add(ctx context.Context, owner, id string) error {
	if b.left[owner] {
		return nil
	}
	b.ids[owner] = append(b.ids[owner], id)
	b.held++
	if len(b.ids[owner]) >= b.p.BatchSize() {
		return b.delete(ctx, owner)
	}
	if b.held >= batcherMost*b.p.BatchSize() {
		return b.flush(ctx)
	}
	return nil
}

func (b *batcher) flush(ctx context.Context) error {
	for owner := range b.ids {
		if err := b.delete(ctx, owner); err != nil {
			return err
		}
	}
	return nil
}

func (b *batcher) delete(ctx context.Context, owner string) error {
	ids := b.ids[owner]
	delete(b.ids, owner)
	b.held -= len(ids)
	b.condemned += len(ids)
	keys := guard.EntryKeys(b.p.Layout(), owner)
	if b.whole {
		keys = keys[:1]
	}
	a, err := b.p.Delete(ctx, Batch{
		Owner:   owner,
		Body:    guard.EvictEntries,
		Keys:    keys,
		Items:   ids,
		Deleted: func(a guard.Answer) { b.evicted(owner, a.Deleted) },
	})
	switch {
	case errors.Is(err, ErrRefused):
		// A key of another type, or a missing right, affects this owner only, not the pass.
		b.p.Skip(SkipUnreadable, len(ids))
		b.leave(owner)
		b.refused.note(b.p.Log(), owner, err)
		return nil
	case err != nil || b.p.DryRun():
		return err
	case a.Verdict == guard.Alive || a.Verdict == guard.Wait:
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
	if len(b.left) >= leftMost {
		clear(b.left)
	}
	b.left[owner] = true
}

// refusals remembers between passes whose batches Redis refuses, so that a lasting refusal is
// logged once.
type refusals struct {
	mu sync.Mutex
	of map[string]refusal // by owner; those of more than refusalsMost are not logged
}

const refusalsMost = 1000

type refusal struct {
	text string
	last time.Time
}

// note takes the result of an owner's batch: the error with which Redis refused it, or nil. A
// different error is logged again.
func (r *refusals) note(log *slog.Logger, owner string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, known := r.of[owner]
	switch text := refusalText(err); {
	case err == nil && known:
		delete(r.of, owner)
		log.Info("deleting the dead owner's entries again", "owner", owner)
	case err == nil || !known && len(r.of) >= refusalsMost:
	default:
		if was.text != text {
			log.Warn("server refuses to delete a dead owner's entries; they remain", "owner", owner, "error", err)
		}
		r.of[owner] = refusal{text, time.Now()}
	}
}

// refusalText leaves out the id of the batch, which differs each time.
func refusalText(err error) string {
	var answer redis.Error
	switch {
	case errors.As(err, &answer):
		return answer.Error()
	case err != nil:
		return err.Error()
	}
	return ""
}

// forget drops owners without a recent refusal: they live, or others swept them.
func (r *refusals) forget(after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.of, func(_ string, is refusal) bool { return time.Since(is.last) > after })
}

const mostLost = 100

// A sent batch has an account in the ledger if a reply to it was lost.
type sent struct {
	guard.Batch
	deleted func(guard.Answer) // the sweep's callback, or nil
	lost    bool               // a try had no answer, and may yet land
	refused bool               // a later one had, and it was not DONE
}

// ledger keeps this process' counter exact: each batch's deletes are counted once. A batch whose
// reply was lost has an account until its fate is known: a later try was answered DONE, the log has
// its record, or has none and the term is over. A term has at most one of unknown fate, since the
// reaper sends no other batch meanwhile; beside it are those that a later try found refused. There
// are at most mostLost. Fates outlive terms, and so does the ledger.
type ledger struct {
	j *Janitor

	mu       sync.Mutex
	accounts []*sent // oldest first
}

func (l *ledger) lose(b *sent) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.lost {
		return
	}
	b.lost = true
	l.accounts = append(l.accounts, b)
	if len(l.accounts) > mostLost {
		l.accounts = slices.Delete(l.accounts, 0, 1)
	}
}

// answered takes an answer. DONE counts, unless lookUp was faster.
func (l *ledger) answered(b *sent, a guard.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.refused = a.Verdict != guard.Done
	if !b.refused && (!b.lost || l.close(b)) {
		l.j.deleted(b, a)
	}
}

// close reports whether the account was open. The caller holds mu.
func (l *ledger) close(b *sent) bool {
	i := slices.Index(l.accounts, b)
	if i >= 0 {
		l.accounts = slices.Delete(l.accounts, i, i+1)
	}
	return i >= 0
}

// lookUp looks up the accounts in the log. After an error the rest waits for the next call.
func (l *ledger) lookUp(ctx context.Context) error {
	l.mu.Lock()
	open := slices.Clone(l.accounts)
	l.mu.Unlock()
	for _, b := range open {
		fate, err := l.j.guard.Fate(ctx, b.Batch)
		if err != nil {
			return err
		}
		l.settle(b, fate)
	}
	return nil
}

func (l *ledger) settle(b *sent, fate guard.Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !fate.Settled || !l.close(b):
	case fate.Verdict == guard.Done:
		l.j.deleted(b, fate.Answer)
	case fate.Trimmed && !b.refused:
		l.j.log.Warn("batch outcome lost: eviction log trimmed too early", "batch", b.ID.String())
	}
}

func (l *ledger) unknown() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.accounts {
		if !b.refused {
			n++
		}
	}
	return n
}
