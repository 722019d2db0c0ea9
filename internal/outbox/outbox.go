// Package outbox writes what nobody waits for: in the background, in order, bounded, and again
// until it succeeds.
//
//	box := outbox.New(outbox.Config[event]{Write: add, Most: 1000, Within: 2 * time.Second})
//	go box.Run(ctx, time.Second)
//	...
//	if !box.Add(e) { // too many wait: e is dropped
package outbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Config configures an Outbox.
type Config[T any] struct {
	// Write stores a batch within this time. After an error it gets the same batch again, so after a
	// lost reply entries are written twice. It returns nil for what no repetition can store.
	Write  func(ctx context.Context, batch []T) error
	Within time.Duration
	// Writes, if not nil, notes the result of each Write that was not abandoned.
	Writes *streak.Streak
	// Most bounds what waits, and Batch what one Write gets, by Cost. A batch has at least one entry.
	// Default Batch Most, Cost 1.
	Most, Batch int
	Cost        func(T) int
	// Share bounds what waits of each Owner, by Cost. 0: not.
	Share int
	Owner func(T) string
}

// Outbox is safe for concurrent use.
type Outbox[T any] struct {
	cfg  Config[T]
	wake chan struct{}

	mu     sync.Mutex
	due    []T // oldest first
	cost   int
	of     map[string]int // cost by owner
	closed bool
}

const pauseFirst, pauseMost = 50 * time.Millisecond, 5 * time.Second

// New returns an Outbox, which writes once it runs.
func New[T any](cfg Config[T]) *Outbox[T] {
	if cfg.Cost == nil {
		cfg.Cost = func(T) int { return 1 }
	}
	if cfg.Batch == 0 {
		cfg.Batch = cfg.Most
	}
	return &Outbox[T]{cfg: cfg, wake: make(chan struct{}, 1), of: make(map[string]int)}
}

// Add never blocks. It returns false if the box is full, or Run has ended.
func (o *Outbox[T]) Add(one T) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	cost := o.cfg.Cost(one)
	if o.closed || o.cost+cost > o.cfg.Most {
		return false
	}
	if o.cfg.Share > 0 {
		owner := o.cfg.Owner(one)
		if o.of[owner]+cost > o.cfg.Share {
			return false
		}
		o.of[owner] += cost
	}
	o.cost += cost
	o.due = append(o.due, one)
	wait.Nudge(o.wake)
	return true
}

// Waiting returns the number of entries that are not written yet.
func (o *Outbox[T]) Waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.due)
}

// Run writes until ctx ends and, while entries wait, for at most last after that. It returns those
// that are left.
func (o *Outbox[T]) Run(ctx context.Context, last time.Duration) (left []T) {
	work, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(last, abandon) })()
	pause := wait.Between(pauseFirst, pauseMost)
	for {
		batch, ended := o.next(ctx.Err() != nil, work.Err() != nil)
		switch {
		case ended:
			return batch
		case len(batch) == 0:
			select {
			case <-o.wake:
			case <-ctx.Done():
			}
		case o.write(work, batch) == nil:
			o.remove(batch)
			pause.Reset()
		default:
			pause.Wait(work)
		}
	}
}

func (o *Outbox[T]) write(ctx context.Context, batch []T) error {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Within)
	defer cancel()
	err := o.cfg.Write(ctx, batch)
	if o.cfg.Writes != nil && !errors.Is(ctx.Err(), context.Canceled) {
		o.cfg.Writes.Note(err)
	}
	return err
}

// next returns the oldest entries, or all that are left if this is the end.
func (o *Outbox[T]) next(ending, abandoned bool) (batch []T, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if abandoned || ending && len(o.due) == 0 {
		o.closed = true
		left := o.due
		o.due = nil
		return left, true
	}
	n, cost := 0, 0
	for ; n < len(o.due); n++ {
		if cost += o.cfg.Cost(o.due[n]); n > 0 && cost > o.cfg.Batch {
			break
		}
	}
	return o.due[:n:n], false
}

func (o *Outbox[T]) remove(written []T) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, one := range written {
		cost := o.cfg.Cost(one)
		o.cost -= cost
		if o.cfg.Share == 0 {
			continue
		}
		owner := o.cfg.Owner(one)
		if o.of[owner] -= cost; o.of[owner] <= 0 {
			delete(o.of, owner)
		}
	}
	clear(o.due[:len(written)])
	o.due = o.due[len(written):]
}
