package janitor

import (
	"context"
	"slices"
	"sync"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

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
