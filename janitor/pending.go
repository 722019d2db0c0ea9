package janitor

import (
	"context"
	"slices"
	"sync"

	"github.com/rollcall-redis/rollcall/guard"
)

const refusedMost = 100

// pendingBatches keeps an account of each batch from before it is sent until its fate is known: a
// delayed request may yet land, and its deletes must be counted, once. An account is closed when the
// batch is answered DONE; when the log has its record; when the log has none and the batch's term is
// over; or, if it was refused, when refusedMost later ones were too.
//
// So accounts are bounded: a term has at most one of unknown fate, since the reaper sends no other
// batch meanwhile. Fates outlive terms, and so does pendingBatches. It only keeps this process'
// counter exact; the log and its total always are.
type pendingBatches struct {
	guard *guard.Guard
	done  func(b guard.Batch, a guard.Answer) // counts the deletes
	lost  func(id guard.BatchID)              // the log was trimmed: the outcome can not be known

	mu       sync.Mutex
	accounts []*account // by id, oldest first
}

type account struct {
	batch   guard.Batch        // without keys and items, which may be large
	deleted func(guard.Answer) // the sweep's callback, or nil
	refused bool               // the last answer was not DONE
	sent    bool               // a try is over
}

func (l *pendingBatches) open(b guard.Batch, deleted func(guard.Answer)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.Keys, b.Items = nil, nil
	l.accounts = append(l.accounts, &account{batch: b, deleted: deleted})
}

// answered takes the end of a try: a is nil if there was no answer. DONE counts, unless lookUp was
// faster. After any other answer only a delayed copy of the request, sent by a client that retries,
// can still change the outcome.
func (l *pendingBatches) answered(b guard.Batch, a *guard.Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a != nil && a.Verdict == guard.Done {
		l.close(b.ID, a)
		return
	}
	var refused []*account
	for _, acc := range l.accounts {
		if acc.batch.ID == b.ID {
			acc.sent, acc.refused = true, acc.refused || a != nil
		}
		if acc.refused {
			refused = append(refused, acc)
		}
	}
	if len(refused) > refusedMost {
		l.close(refused[0].batch.ID, nil)
	}
}

// close counts the deletes of an open account; a is nil if the batch did not land. The caller holds
// mu.
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

// lookUp looks up the open accounts in the log, in one round trip, except a batch whose first
// answer is still on its way. Unreadable and unsettled ones wait for the next call.
func (l *pendingBatches) lookUp(ctx context.Context) error {
	l.mu.Lock()
	var batches []guard.Batch
	refused := map[guard.BatchID]bool{}
	for _, acc := range l.accounts {
		if acc.sent {
			batches = append(batches, acc.batch)
			refused[acc.batch.ID] = acc.refused
		}
	}
	l.mu.Unlock()

	fates, err := l.guard.Fates(ctx, batches)
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, fate := range fates { // those answered DONE meanwhile are closed and counted already
		switch {
		case fate.Verdict == guard.Done:
			l.close(id, &fate.Answer)
		case fate.Settled:
			if fate.Trimmed && !refused[id] {
				l.lost(id)
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
