package janitor

import (
	"context"
	"maps"
	"sync"

	"github.com/rollcall-redis/rollcall/guard"
)

// refusedMost bounds the accounts of batches that were refused.
const refusedMost = 100

// pendingBatches remembers batches from before they are sent until their fate is known. Most are
// answered DONE at once. Of those that are not, most never will be done; but a request that was
// delayed on its way may yet land, and then what it deleted must be counted, once. An account is
// closed when
//
//   - the batch is answered DONE,
//   - the log has its record,
//   - its term is over, or a later batch of it was recorded, and the log has none: it cannot land
//     any more, since the log takes no id below its newest,
//   - it was refused, and refusedMost later ones were too.
//
// So it is bounded, whatever refuses batches. An account of unknown fate is never dropped,
// and a term has one at most: the reaper asks for no other batch before that one was answered. A
// refused batch was answered; only a copy of its request that the client, or the reaper, had sent
// before could land later. If that happens to one that was dropped, what it deleted is not counted
// by this process; the log and its total, which the server writes along with the delete, have it.
//
// It outlives terms, because fates do.
type pendingBatches struct {
	guard *guard.Guard
	done  func(b guard.Batch, a guard.Answer) // counts what was deleted

	mu       sync.Mutex
	accounts map[guard.BatchID]account
}

type account struct {
	batch      guard.Batch // without keys and items: they may be large and are not needed
	deleted    func(n int) // of the sweep; nil: it does not ask
	superseded bool        // a later batch of its term was recorded
	refused    bool        // the last word about it was an answer, and not DONE
}

func newPendingBatches(g *guard.Guard, done func(guard.Batch, guard.Answer)) *pendingBatches {
	return &pendingBatches{guard: g, done: done, accounts: map[guard.BatchID]account{}}
}

// open notes that a batch is about to be asked for, for the first time.
func (l *pendingBatches) open(b guard.Batch, deleted func(n int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.Keys, b.Items = nil, nil
	l.accounts[b.ID] = account{batch: b, deleted: deleted}
}

// refused notes that a batch was answered otherwise than DONE. Only a request held up on its way,
// of which a client that retries says nothing, could still prove that wrong.
func (l *pendingBatches) refused(b guard.Batch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	acc, there := l.accounts[b.ID]
	if !there {
		return
	}
	acc.refused = true
	l.accounts[b.ID] = acc
	oldest, refused := b.ID, 0
	for id, acc := range l.accounts {
		if !acc.refused {
			continue
		}
		refused++
		if id.Epoch < oldest.Epoch || id.Epoch == oldest.Epoch && id.N < oldest.N {
			oldest = id
		}
	}
	if refused > refusedMost {
		delete(l.accounts, oldest)
	}
}

// recorded notes that a batch was answered DONE. It is counted unless the log was faster than the
// reply, and everything before it in its term can no longer land.
func (l *pendingBatches) recorded(b guard.Batch, a guard.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if acc, there := l.accounts[b.ID]; there {
		l.close(acc, a)
	}
	for id, acc := range l.accounts {
		if id.Epoch == b.ID.Epoch && id.N < b.ID.N {
			acc.superseded = true
			l.accounts[id] = acc
		}
	}
}

// close counts what a batch deleted. Caller holds mu.
func (l *pendingBatches) close(acc account, a guard.Answer) {
	delete(l.accounts, acc.batch.ID)
	l.done(acc.batch, a)
	if acc.deleted != nil {
		acc.deleted(a.Deleted)
	}
}

// settle looks the open accounts up, in one round trip. What cannot be read, or cannot be known
// yet, stays for the next time.
func (l *pendingBatches) settle(ctx context.Context) error {
	l.mu.Lock()
	open := maps.Clone(l.accounts)
	l.mu.Unlock()

	batches := make([]guard.Batch, 0, len(open))
	for _, acc := range open {
		batches = append(batches, acc.batch)
	}
	fates, err := l.guard.Fates(ctx, batches)
	for id, fate := range fates {
		l.settled(open[id], fate)
	}
	return err
}

func (l *pendingBatches) settled(acc account, fate guard.Fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, there := l.accounts[acc.batch.ID]; !there {
		return // answered DONE meanwhile, and counted then
	}
	// acc is what was known before the log was asked: superseded then, the answer is final.
	switch {
	case fate.Verdict == guard.Done:
		l.close(acc, fate.Answer)
	case fate.Settled || acc.superseded:
		delete(l.accounts, acc.batch.ID)
	}
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
