package commands

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// Each instance has a copy of the fleet's queue: some 12 MB at most.
	waitingMost = 10_000
	// lookTime is how often the queue is read on. Its start is read again every Config.Answer: other
	// instances remove entries.
	lookTime  = time.Second
	pagesMost = 2 * waitingMost / readMost
)

type waiting struct {
	devices map[string][]entry // by IMEI, in the queue's order
	count   int
	attempt int64         // the last one begun
	look    chan struct{} // holds a token: look at once

	// followQueue's own; the Reader's mu guards the rest.
	from    string // position for XRANGE
	began   time.Time
	skew    time.Duration   // how far Redis' clock is ahead of this one
	whole   bool            // read to its end once
	overdue map[string]bool // entries sent long ago
}

func newWaiting() waiting {
	return waiting{devices: make(map[string][]entry), look: make(chan struct{}, 1), from: "-"}
}

// Waiting returns the number of commands in the fleet's queue, as of the last look.
func (r *Reader) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting.count
}

// overdue is how long after a command was sent its instance should have reported an outcome.
func (r *Reader) overdue() time.Duration { return 2 * r.cfg.Answer }

func (e entry) same(other entry) bool { return e.stream == other.stream && e.at == other.at }

func (r *Reader) followQueue(ctx, work context.Context) {
	for ctx.Err() == nil {
		err := r.readQueue(ctx)
		if ctx.Err() != nil {
			return
		}
		r.looks.Note(err)
		r.serveQueue(ctx, work)
		select {
		case <-time.After(lookTime):
		case <-r.waiting.look:
		case <-ctx.Done():
		}
	}
}

func (r *Reader) readQueue(ctx context.Context) error {
	w := &r.waiting
	if time.Since(w.began) >= r.cfg.Answer {
		if err := r.beginQueue(ctx); err != nil {
			return err
		}
	}
	for range pagesMost {
		page, err := r.page(ctx, r.queue, w.from)
		if err != nil {
			return err
		}
		r.begin(ctx, r.queue, page, func(e entry) (Status, string) {
			w.from = "(" + e.at
			e.due = e.Expires.Add(-w.skew)
			if w.overdue[e.at] {
				e.due = time.Time{}
			}
			return r.admit(e)
		})
		if len(page) < readMost {
			w.whole = true
			return nil
		}
	}
	return nil
}

func (r *Reader) beginQueue(ctx context.Context) error {
	w := &r.waiting
	least := r.overdue()
	if !w.whole {
		least = 0 // an earlier life's are overdue
	}
	call, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	out, err := overdueScript.Run(call, r.cfg.Client, []string{r.queue}, group, least.Milliseconds()).StringSlice()
	if err != nil {
		return err
	}
	if len(out) == 0 {
		return fmt.Errorf("commands: unexpected answer about %s", r.queue)
	}
	ms, err := strconv.ParseInt(out[0], 10, 64)
	if err != nil {
		return fmt.Errorf("commands: unexpected answer about %s: %w", r.queue, err)
	}
	w.skew = time.Until(time.UnixMilli(ms))
	w.overdue = make(map[string]bool)
	for _, at := range out[1:] {
		w.overdue[at] = true
	}
	w.from, w.began = "-", time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	w.devices, w.count = make(map[string][]entry), 0
	return nil
}

// page reads commands, cut to the size of one.
func (r *Reader) page(ctx context.Context, stream, from string) ([]redis.XMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return cutPage(ctx, r.cfg.Client, stream, from, readMost, maxText,
		"id", "imei", "text", "codec", "expires", "queue")
}

// admit returns why an entry must not wait.
func (r *Reader) admit(e entry) (refused Status, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.waiting
	list := w.devices[e.IMEI]
	switch {
	case e.fault != nil:
		return Invalid, e.fault.Error()
	case len(list) >= deviceMost:
		return Busy, fmt.Sprintf("%d commands wait for the device already", len(list))
	case w.count >= waitingMost:
		return Busy, fmt.Sprintf("%d commands wait for their devices already", w.count)
	}
	w.devices[e.IMEI] = append(list, e)
	w.count++
	return "", ""
}

func (w *waiting) begin(e entry) entry {
	w.attempt++
	e.attempt = w.attempt
	return e
}

func (r *Reader) ahead(e entry) (entries []any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.waiting.devices[e.IMEI] {
		entries = append(entries, other.at)
	}
	return entries
}

func (r *Reader) forget(e entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &r.waiting
	list := w.devices[e.IMEI]
	i := slices.IndexFunc(list, e.same)
	if i < 0 {
		return
	}
	w.count--
	if w.devices[e.IMEI] = slices.Delete(list, i, i+1); len(list) == 1 {
		delete(w.devices, e.IMEI)
		return
	}
	wait.Nudge(w.look)
}

func (r *Reader) serveQueue(ctx, work context.Context) {
	send, due := r.turn(time.Now())
	for _, e := range send {
		_, _ = r.enqueue(ctx, work, e) // without a place it waits on
	}
	settles := pool.New().WithMaxGoroutines(refusalsMost)
	for _, e := range due {
		settles.Go(func() { _ = r.tryConclude(ctx, e, Expired, "expired before its device connected") })
	}
	settles.Wait()
}

// turn returns each ready device's first command, and others that are due.
func (r *Reader) turn(now time.Time) (send, due []entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for imei, list := range r.waiting.devices {
		queue := r.queues[imei]
		if slices.ContainsFunc(queue, r.queued) {
			continue
		}
		i := 0
		for ; i < len(list) && !now.Before(list[i].due); i++ {
			if len(due) < readMost {
				due = append(due, r.waiting.begin(list[i]))
				list[i].due = now.Add(r.cfg.Answer) // if it gets no outcome now
			}
		}
		if i < len(list) && r.cfg.Devices.Ready(imei) {
			send = append(send, r.waiting.begin(list[i]))
		}
	}
	return send, due
}
