package janitor

import (
	"context"
	"slices"
	"sync"

	"github.com/rollcall-redis/rollcall/guard"
)

const refusedMost = 100

// pendingBatches keeps an account of each batch from before it is sent until its fate is known: a
// delayed request may yet land, and its deletes must be counted, once. An account is closed when
//
//   - the batch is answered DONE,
//   - the log has its record,
//   - the log has no record of it, and its term is over or a later batch was recorded: it cannot
//     land any more, since the log takes no id below its newest. If the log was trimmed past the
//     term the outcome is unknown, and lost is called,
//   - it was refused, and refusedMost later ones were too.
//
// So accounts are bounded. A term has at most one of unknown fate, since the reaper sends no other
// batch meanwhile, and it is never dropped. Fates outlive terms, and so does pendingBatches.
type pendingBatches struct {
	guard *guard.Guard
	done  func(b guard.Batch, a guard.Answer) // counts the deletes
	lost  func(b guard.Batch)                 // the outcome can no longer be known

	mu       sync.Mutex
	accounts []*account // by id, oldest first
}

type account struct {
	batch      guard.Batch        // without keys and items, which may be large
	deleted    func(guard.Answer) // the sweep's callback, or nil
	superseded bool               // a later batch of its term was recorded
	refused    bool               // the last answer was not DONE
	unanswered bool               // a try ended without an answer; otherwise the first is under way
}

func newPendingBatches(
	g *guard.Guard, done func(guard.Batch, guard.Answer), lost func(guard.Batch),
) *pendingBatches {
	return &pendingBatches{guard: g, done: done, lost: lost}
}

func (l *pendingBatches) open(b guard.Batch, deleted func(guard.Answer)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.Keys, b.Items = nil, nil
	l.accounts = append(l.accounts, &account{batch: b, deleted: deleted})
}

// refused notes an answer other than DONE. Only a delayed copy of the request, sent by a client
// that retries, can still change the outcome.
func (l *pendingBatches) refused(b guard.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	oldest, refused := -1, 0
	for i, acc := range l.accounts {
		acc.refused = acc.refused || acc.batch.ID == b.ID
		if acc.refused {
			if refused++; refused == 1 {
				oldest = i
			}
		}
	}
	if refused > refusedMost {
		l.accounts = slices.Delete(l.accounts, oldest, oldest+1)
	}
}

func (l *pendingBatches) unanswered(b guard.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, acc := range l.accounts {
		acc.unanswered = acc.unanswered || acc.batch.ID == b.ID
	}
}

// recorded notes that a batch was answered DONE. It is counted unless lookUp was faster, and
// earlier batches of its term can no longer land.
func (l *pendingBatches) recorded(b guard.Batch, a guard.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.close(b.ID, &a)
	for _, acc := range l.accounts {
		if acc.batch.ID.Epoch == b.ID.Epoch && acc.batch.ID.N < b.ID.N {
			acc.superseded = true
		}
	}
}

// close counts the deletes of an open account; a is nil if the batch did not land. The
// caller holds mu.
func (l *pendingBatches) close(id guard.BatchID, a *guard.Answer) {
	i := slices.IndexFunc(l.accounts, func(acc *account) bool { return acc.batch.ID == id })
	if i < 0 {
		return
	}
	acc := l.accounts[i]
	l.accounts = slices.Delete(l.accounts, i, i+1)
	if a == nil {
		return
	}
	l.done(acc.batch, *a)
	if acc.deleted != nil {
		acc.deleted(*a)
	}
}

func (l *pendingBatches) cannotKnow(id guard.BatchID) {
	for _, acc := range l.accounts {
		if acc.batch.ID == id && !acc.refused {
			l.lost(acc.batch)
		}
	}
}

// lookUp looks up the open accounts in the log, in one round trip, except a batch whose first
// answer is still on its way. Unreadable and unsettled ones wait for the next call.
func (l *pendingBatches) lookUp(ctx context.Context) error {
	l.mu.Lock()
	var batches []guard.Batch
	superseded := map[guard.BatchID]bool{}
	for _, acc := range l.accounts {
		if !acc.unanswered && !acc.refused {
			continue
		}
		batches = append(batches, acc.batch)
		superseded[acc.batch.ID] = acc.superseded // before reading the log, so that its answer is final
	}
	l.mu.Unlock()

	fates, err := l.guard.Fates(ctx, batches)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, fate := range fates { // those answered DONE meanwhile are closed and counted already
		switch {
		case fate.Verdict == guard.Done:
			l.close(id, &fate.Answer)
		case fate.Settled || superseded[id]:
			if fate.Trimmed {
				l.cannotKnow(id)
			}
			l.close(id, nil)
		}
	}
	return err
}

func (l *pendingBatches) unknown() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, acc := range l.accounts {
		if !acc.refused {
			n++
		}
	}
	return n
}
