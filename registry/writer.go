package registry

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// batchSize bounds one script: about 0.5 ms of the server's time.
	batchSize = 500
	// callTimeout bounds one call of the writer, whatever the client's own deadlines.
	callTimeout = 3 * time.Second
)

// fifo is a queue of devices; the slice is reused once it has run empty.
type fifo struct {
	items []*device
	head  int
}

func (q *fifo) push(d *device) { q.items = append(q.items, d) }
func (q *fifo) len() int       { return len(q.items) - q.head }
func (q *fifo) pop() *device {
	d := q.items[q.head]
	q.items[q.head] = nil
	if q.head++; q.head >= len(q.items)/2 { // also of a queue that never runs empty
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	return d
}

// enqueue has a device written (urgent) or looked at. Caller holds mu.
func (r *Registry) enqueue(d *device, urgent bool) {
	if !d.settled {
		r.watched[d] = struct{}{}
	}
	switch {
	case !d.queued:
		d.queued, d.urgent = true, urgent
	case urgent && !d.urgent:
		d.urgent = true // its place in checks is skipped when it comes up
	default:
		return
	}
	if urgent {
		r.urgent.push(d)
	} else {
		r.checks.push(d)
	}
	nudge(r.wake)
}

// nudge fills the one slot of a channel; somebody who is nudged already need not be again.
func nudge(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// idle: nothing urgent is queued or under way and every write has been answered. Caller holds mu.
func (r *Registry) idle() bool {
	if r.urgent.len() > 0 || r.batches%2 == 1 {
		return false
	}
	for d := range r.watched {
		if !d.settled && d.claim == nil {
			return false
		}
	}
	return true
}

// op is one operation of a batch, decided when the batch is made.
type op struct {
	d     *device
	claim *Claim // whose; nil for a release
	seen  string // heal: the foreign value that may be overwritten
}

type batch struct {
	register, heal, release, check []op
}

// next makes a batch of what is most urgent. Caller holds mu.
func (r *Registry) next() batch {
	var b batch
	now := time.Now()
	for n := 0; n < batchSize && r.urgent.len()+r.checks.len() > 0; {
		urgent := r.urgent.len() > 0
		var d *device
		if urgent {
			d = r.urgent.pop()
		} else {
			d = r.checks.pop()
		}
		if !d.queued || d.urgent != urgent {
			continue // done already, or waiting in the other queue
		}
		d.queued = false
		n++
		c := d.claim
		switch {
		case c == nil:
			b.release = append(b.release, op{d: d})
		case !d.settled && !c.tried && now.Sub(c.made) < fresh:
			c.tried = true
			b.register = append(b.register, op{d: d, claim: c})
		case urgent && d.evidence == proven:
			b.heal = append(b.heal, op{d: d, claim: c, seen: d.foreign})
		case urgent && d.foreign == "":
			if !c.tried { // it waited too long to be the device's own word
				c.tried = true
				r.metrics.failures.WithLabelValues("register").Inc()
			}
			b.heal = append(b.heal, op{d: d, claim: c})
		default:
			b.check = append(b.check, op{d: d, claim: c})
		}
	}
	return b
}

// write is the one goroutine that writes entries.
func (r *Registry) write(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
		}
		for ctx.Err() == nil {
			r.mu.Lock()
			if r.boot == "" || r.urgent.len()+r.checks.len() == 0 {
				r.mu.Unlock()
				break // the boot wakes again
			}
			b := r.next()
			r.batches++
			r.mu.Unlock()

			err := errors.Join(
				r.do(ctx, registerScript, "register", b.register),
				r.do(ctx, releaseScript, "release", b.release),
				r.do(ctx, healScript, "heal", b.heal),
				r.look(ctx, b.check),
			)

			r.mu.Lock()
			r.batches++
			r.changed.Broadcast()
			moves := r.moves
			r.moves = nil
			r.mu.Unlock()
			for _, m := range moves {
				r.cfg.Displaced(m.imei, m.owner)
			}
			if err != nil {
				r.failed(err)
				wait.For(ctx, r.retryDelay())
			}
		}
	}
}

// retryDelay is what passes between two attempts while Redis refuses or does not answer.
func (r *Registry) retryDelay() time.Duration { return min(r.cfg.HeartbeatInterval/10, time.Second) }

// do runs one script over ops and notes what became of them. What was decided anew while a script before it took its time is left
// to the next batch, where it waits already: a device that came back must not be released behind its back.
func (r *Registry) do(ctx context.Context, s *redis.Script, name string, ops []op) error {
	r.mu.Lock()
	ops = slices.DeleteFunc(ops, func(o op) bool { return o.d.claim != o.claim })
	r.mu.Unlock()
	if len(ops) == 0 {
		return nil
	}
	args := make([]string, 0, 2*len(ops))
	for _, o := range ops {
		args = append(args, o.d.imei)
		if s == healScript {
			args = append(args, o.seen)
		}
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	got, err := r.own(call, r.cfg.Client, s, args...)

	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, o := range ops {
		switch {
		case err != nil:
			o.d.unsure = now.Add(r.cfg.HeartbeatTTL)
			r.unsettle(o.d)
		case o.claim == nil:
			r.index(o.d, false)
			r.settle(o.d, o.d.claim == nil)
		default:
			if other, foreign := got.foreign[o.d.imei]; foreign {
				r.foreign(o, other)
				continue
			}
			r.index(o.d, true)
			o.d.checked = now
			r.ours(o)
		}
	}
	if err != nil {
		n := 1
		if name == "register" {
			n = len(ops)
		}
		r.fail(name, err, n)
		return err
	}
	if name == "heal" {
		r.healed += uint64(got.count)
		r.metrics.healed.Add(float64(got.count))
		r.recovered("register") // which is how a registration that failed is tried again
	}
	r.recovered(name)
	r.read(got)
	return nil
}

// look compares entries with claims, reading only.
func (r *Registry) look(ctx context.Context, ops []op) error {
	if len(ops) == 0 {
		return nil
	}
	imeis := make([]string, len(ops))
	for i, o := range ops {
		imeis[i] = o.d.imei
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := r.cfg.Client.HMGet(call, r.keys.Registry(), imeis...).Result()
	failpoint.Hit(failpoint.Comparing)

	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		for _, o := range ops {
			r.unsettle(o.d)
		}
		r.fail("heal", err, 1)
		return err
	}
	now := time.Now()
	for i, o := range ops {
		o.d.checked = now
		switch owner, there := found[i].(string); {
		case o.d.claim != o.claim: // decided anew already
		case owner == r.id && o.d.indexed:
			r.ours(o)
		case !there || owner == "" || owner == r.id: // lost, or names nobody; or landed though its answer was not heard: heal notes it
			o.d.settled = false
			o.d.foreign, o.d.evidence = "", none
			r.enqueue(o.d, true)
		case o.d.foreign == owner: // known; what proof has come meanwhile stands
			r.unsettle(o.d)
		default:
			r.foreign(o, owner)
		}
	}
	return nil
}

// ours notes that an entry names this instance. Caller holds mu, as for all below.
func (r *Registry) ours(o op) {
	if o.d.claim != o.claim {
		return // a newer claim, or a release, is queued
	}
	o.d.foreign, o.d.evidence = "", none
	o.claim.land()
	r.settle(o.d, true)
}

// foreign notes that an entry names another instance: only evidence takes it back.
func (r *Registry) foreign(o op, owner string) {
	if o.d.claim != o.claim {
		return
	}
	if o.d.foreign != owner {
		o.d.foreign, o.d.evidence = owner, foreignSeen
		r.log.Debug("entry names another instance", "imei", o.d.imei, "owner", owner)
		if r.cfg.Displaced != nil {
			r.moves = append(r.moves, move{o.d.imei, owner})
		}
	} else if o.d.evidence == proven { // the heal met another value in between and this one again
		o.d.evidence = foreignSeen
	}
	r.unsettle(o.d)
}

func (r *Registry) index(d *device, in bool) {
	d.wrote = r.batches
	if d.indexed != in && !r.cfg.NoReverseIndex {
		if in {
			r.indexed++
		} else {
			r.indexed--
		}
	}
	d.indexed = in
}

// settle notes that Redis agrees with what is wanted, unless that has changed since.
func (r *Registry) settle(d *device, agrees bool) {
	if !agrees {
		return
	}
	d.settled = true
	if d.unsure.After(time.Now()) {
		r.watched[d] = struct{}{}
		return
	}
	delete(r.watched, d)
	if d.claim == nil && !d.queued {
		r.forget(d)
	}
}

func (r *Registry) unsettle(d *device) {
	d.settled = false
	r.watched[d] = struct{}{}
}

// retry has everything looked at again that is not settled or may yet be changed by a late write, and what a frame came for too soon.
// It runs every interval/10.
func (r *Registry) retry() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.watched) == 0 && !r.scanFails { // Redis agrees about every device: whatever failed has been made good
		for _, op := range []string{"register", "release", "heal"} {
			r.recovered(op)
		}
	}
	for d := range r.watched {
		// A foreign entry that there is no proof against is looked at, to see whether it is free now.
		r.enqueue(d, d.claim == nil || !d.settled && (d.foreign == "" || d.evidence == proven))
	}
	for d := range r.owed {
		if d.claim == nil || r.verify(d) {
			delete(r.owed, d)
		}
	}
}

// fail counts a failure and logs the first of a streak; recovered ends the streak. Callers hold mu.
func (r *Registry) fail(op string, err error, n int) {
	if errors.Is(err, ErrSuperseded) || errors.Is(err, context.Canceled) {
		return // told elsewhere, or the end of Run
	}
	r.metrics.failures.WithLabelValues(op).Add(float64(n))
	if r.failing[op] == nil {
		r.tell(op, err)
	}
	r.failing[op] = err
}

func (r *Registry) recovered(op string) {
	if r.failing[op] != nil {
		delete(r.failing, op)
		r.log.Info("registry operation works again", "op", op)
	}
}

// failed ends the life of a superseded process.
func (r *Registry) failed(err error) {
	if errors.Is(err, ErrSuperseded) {
		r.end(ErrSuperseded)
	}
}
