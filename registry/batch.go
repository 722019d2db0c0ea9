package registry

import (
	"cmp"
	"slices"
	"time"
)

// batchSize bounds one script to about 0.5 ms of the server's time.
const batchSize = 500

func (t *table) enqueue(d *device, urgent bool) {
	q := &t.checks
	if urgent {
		q = &t.urgent
	}
	if d.in == &t.urgent || d.in == q {
		return
	}
	dequeue(d)
	d.in, d.at = q, q.PushBack(d)
	nudge(t.wake)
}

func dequeue(d *device) {
	if d.in != nil {
		d.in.Remove(d.at)
		d.in, d.at = nil, nil
	}
}

func nudge(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

type op struct {
	d     *device
	claim *Claim
	seen  string // heal: the foreign value that may be overwritten
	dead  string // heal: the same, but only if that instance is dead
}

type batch struct {
	register, heal, outlive, release, check []op
	late                                    int // part of heal: registrations that waited too long
}

func (t *table) next(now time.Time) (b batch) {
	t.batches++
	for range batchSize {
		first := cmp.Or(t.urgent.Front(), t.checks.Front())
		if first == nil {
			break
		}
		d := first.Value.(*device)
		urgent := d.in == &t.urgent
		dequeue(d)
		c, untried := d.claim, d.state.untried()
		if untried {
			t.set(d, unconfirmed)
		}
		switch {
		case c == nil:
			b.release = append(b.release, op{d: d})
		case untried && age(c.made, now) < fresh:
			b.register = append(b.register, op{d: d, claim: c})
		case urgent && t.proof(d, now):
			b.heal = append(b.heal, op{d: d, claim: c, seen: d.dispute.owner})
		case urgent && (d.indexed || !d.state.disputed()): // or to take it out of the index
			if untried {
				b.late++
			}
			b.heal = append(b.heal, op{d: d, claim: c})
		case t.outlived(d, now):
			b.outlive = append(b.outlive, op{d: d, claim: c, dead: d.dispute.owner})
		default:
			b.check = append(b.check, op{d: d, claim: c})
		}
	}
	return b
}

// wanted drops the ops that changed after the batch was made, and those whose proof has aged. The
// former wait for the next batch: a device that came back must not be released.
func (t *table) wanted(ops []op, now time.Time) []op {
	return slices.DeleteFunc(ops, func(o op) bool {
		return o.d.claim != o.claim || o.seen != "" && !t.proof(o.d, now) || o.dead != "" && !o.outliving()
	})
}

func (t *table) ended(err error) {
	t.batches++
	t.away = err != nil
}

func (t *table) wrote(ops []op, got reply, err error, now time.Time) {
	for _, o := range ops {
		owner, foreign := got.foreign[o.d.imei]
		switch {
		case o.d.state == forgotten:
			t.searchUntil = now.Add(t.ttl)
		case err != nil:
			t.lateUntil = now.Add(t.ttl)
			o.d.late = t.lateUntil
			t.set(o.d, o.d.state.afterFailure())
		case o.claim == nil:
			t.index(o.d, false)
			if o.d.claim == nil {
				t.agree(o.d, released, now)
			}
		case foreign:
			t.index(o.d, false)
			if o.d.claim == o.claim {
				if o.seen != "" { // the proof was against another claim
					t.set(o.d, o.d.state.afterFailure())
				}
				t.isForeign(o.d, owner, now)
				if o.dead != "" { // another of this batch is dead, but not this one
					o.d.dispute.silent = false
				}
			}
		default:
			t.index(o.d, true)
			o.d.checked = now
			t.isOurs(o, now)
		}
	}
}

func (t *table) checked(ops []op, found []any, err error, now time.Time) {
	for i, o := range ops {
		if err != nil {
			if o.d.state != forgotten {
				t.set(o.d, o.d.state.afterFailure())
			}
			continue
		}
		o.d.checked = now
		switch owner, _ := found[i].(string); {
		case o.d.claim != o.claim: // already changed
		case owner == t.id && o.d.indexed:
			t.isOurs(o, now)
		case owner == t.id || owner == "": // it landed but its reply was lost, or it was lost
			t.set(o.d, unconfirmed)
			t.enqueue(o.d, true)
		default:
			t.isForeign(o.d, owner, now)
			t.unindex(o.d)
		}
	}
}

// isOurs records that an entry names this instance, unless a newer claim or a release is queued.
func (t *table) isOurs(o op, now time.Time) {
	if o.d.claim != o.claim {
		return
	}
	if !o.claim.landed {
		o.claim.landed = true
		close(o.claim.done)
	}
	t.agree(o.d, standing, now)
}

// agree records that Redis agrees, which is final once no write of unknown fate can still land.
func (t *table) agree(d *device, s state, now time.Time) {
	t.set(d, s)
	if d.late.After(now) {
		return
	}
	delete(t.again, d)
	if s == released && d.in == nil {
		t.forget(d)
	}
}

// retry queues every device that Redis disagrees about or a late write may still change. It also
// checks devices with a frame too soon after their last check. It runs every interval/10.
func (t *table) retry(now time.Time) {
	for d := range t.again {
		if d.state == standing && now.Sub(d.checked) < checkEvery {
			continue
		}
		// A foreign entry without proof is checked: it may be free by now.
		t.enqueue(d, d.state == proven || d.state != standing && !d.state.disputed())
	}
}

func (t *table) checkShard(shard int) {
	for _, d := range t.shards[shard] {
		t.checkStanding(d)
	}
}

func (t *table) checkStanding(d *device) {
	if d.state == standing {
		t.enqueue(d, false)
	}
}
