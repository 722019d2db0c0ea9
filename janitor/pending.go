package janitor

import (
	"context"
	"slices"
	"sync"

	"github.com/rollcall-redis/rollcall/guard"
)

// refusedMost bounds the accounts of batches that were refused.
const refusedMost = 100

// pendingBatches has an account of each batch from before it is sent until its fate is known. Most
// batches are answered DONE at once. Most others will never be done; but a request that was delayed
// on its way may yet land, and then what it deleted must be counted, once. An account is closed
// when
//
//   - the batch is answered DONE,
//   - the log has its record,
//   - its term is over, or a later batch of it was recorded, and the log has none: it cannot land
//     any more, since the log takes no id below its newest. Where the log was trimmed beyond its
//     term nobody can tell what it did, and lost is told,
//   - it was refused, and refusedMost later ones were too.
//
// So their number is bounded. An account of unknown fate is never dropped, and a term has one at
// most: the reaper asks for no other batch before that one was answered. A refused batch was
// answered; only a copy of its request that the client, or the reaper, had sent before could land
// later. If that happens to one that was dropped, what it deleted is not counted by this process;
// the log and its total, which the server writes along with the delete, have it.
//
// It outlives terms, because fates do.
type pendingBatches struct {
	guard *guard.Guard
	done  func(b guard.Batch, a guard.Answer) // counts what was deleted
	lost  func(b guard.Batch)                 // is told of a fate that nobody can know any more

	mu       sync.Mutex
	accounts []*account // in the order of their ids, oldest first
}

type account struct {
	batch      guard.Batch        // without keys and items: they may be large and are not needed
	deleted    func(guard.Answer) // of the sweep; nil: it does not ask
	superseded bool               // a later batch of its term was recorded
	refused    bool               // the last word about it was an answer, and not DONE
	unanswered bool               // a try ended without an answer; until the first has, none is missing
}

func newPendingBatches(
	g *guard.Guard, done func(guard.Batch, guard.Answer), lost func(guard.Batch),
) *pendingBatches {
	return &pendingBatches{guard: g, done: done, lost: lost}
}

// open notes that a batch is about to be asked for, for the first time.
func (l *pendingBatches) open(b guard.Batch, deleted func(guard.Answer)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.Keys, b.Items = nil, nil
	l.accounts = append(l.accounts, &account{batch: b, deleted: deleted})
}

// refused notes that a batch was answered otherwise than DONE. Only a request held up on its way,
// of which a client that retries says nothing, could still prove that wrong.
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

// unanswered notes that a try to have a batch done brought no answer.
func (l *pendingBatches) unanswered(b guard.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, acc := range l.accounts {
		acc.unanswered = acc.unanswered || acc.batch.ID == b.ID
	}
}

// recorded notes that a batch was answered DONE. It is counted unless the log was faster than the
// reply, and everything before it in its term can no longer land.
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

// close closes an account if it is open, and counts what its batch deleted; nil: it did not land.
// The caller holds mu.
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

// cannotKnow tells of a batch of unknown fate, unless it is closed already. The caller holds mu.
func (l *pendingBatches) cannotKnow(id guard.BatchID) {
	for _, acc := range l.accounts {
		if acc.batch.ID == id && !acc.refused {
			l.lost(acc.batch)
		}
	}
}

// lookUp looks the open accounts up in the log, in one round trip, but for a batch whose first
// answer is still on its way. What cannot be read, or cannot be known yet, stays for the next time.
func (l *pendingBatches) lookUp(ctx context.Context) error {
	l.mu.Lock()
	var batches []guard.Batch
	superseded := map[guard.BatchID]bool{}
	for _, acc := range l.accounts {
		if !acc.unanswered && !acc.refused {
			continue
		}
		batches = append(batches, acc.batch)
		superseded[acc.batch.ID] = acc.superseded // before the log is asked: then its answer is final
	}
	l.mu.Unlock()

	fates, err := l.guard.Fates(ctx, batches)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, fate := range fates { // what was answered DONE meanwhile is closed and counted already
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

// unknown is the number of batches of which nothing is known.
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
