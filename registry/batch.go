package registry

import (
	"cmp"
	"container/list"
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// batchSize bounds one script to about 0.5 ms of the server's time.
	batchSize = 500
	// overlapped is the most scripts of a batch. They are under way at the same time: one after the
	// other, 100,000 claims would take 200 round trips.
	overlapped = 8
)

func (t *table) enqueue(h *holding, urgent bool) {
	switch {
	case urgent:
		t.put(h, &t.urgent)
	case h.in == nil:
		t.put(h, &t.checks)
	}
}

func (t *table) put(h *holding, q *list.List) {
	if h.in == q {
		return
	}
	dequeue(h)
	h.in, h.at = q, q.PushBack(h)
	wait.Nudge(t.wake)
}

func dequeue(h *holding) {
	if h.in != nil {
		h.in.Remove(h.at)
		h.in, h.at = nil, nil
	}
}

type op struct {
	h     *holding
	claim *Claim
	dead  string // heal: the instance that the entry names, to be overwritten if it is dead
}

type batch struct {
	register, heal, outlive, release, check []op
	late                                    int // part of heal: registrations that waited too long
}

func (t *table) next(now time.Time) (b batch) {
	t.batches++
	for range overlapped * batchSize {
		first := cmp.Or(t.urgent.Front(), t.suspects.Front(), t.checks.Front())
		if first == nil {
			break
		}
		h := first.Value.(*holding)
		urgent := h.in == &t.urgent
		dequeue(h)
		c, untried := h.claim, h.state.untried()
		if untried {
			t.set(h, unconfirmed)
		}
		switch {
		case c == nil:
			b.release = append(b.release, op{h: h})
		case untried && wait.Age(c.made, now) < fresh:
			b.register = append(b.register, op{h: h, claim: c})
		case urgent && (h.indexed || h.state != foreign): // or to take it out of the index
			if untried {
				b.late++
			}
			b.heal = append(b.heal, op{h: h, claim: c})
		case t.outlived(h, now):
			b.outlive = append(b.outlive, op{h: h, claim: c, dead: h.dispute.owner})
		default:
			b.check = append(b.check, op{h: h, claim: c})
		}
	}
	return b
}

// wanted drops the ops that changed after the batch was made. They wait for the next one: an id
// that came back must not be released.
func (t *table) wanted(ops []op) []op {
	return slices.DeleteFunc(ops, func(o op) bool { return o.h.claim != o.claim })
}

func (t *table) ended(err error) {
	t.batches++
	t.away = err != nil
}

func (t *table) wrote(ops []op, got reply, err error, now time.Time) {
	for _, o := range ops {
		owner, foreign := got.foreign[o.h.id]
		switch {
		case o.h.state == forgotten:
			t.searchUntil = now.Add(t.ttl)
		case err != nil:
			t.lateUntil = now.Add(t.ttl)
			o.h.late = t.lateUntil
			t.set(o.h, o.h.state.afterFailure())
		case o.claim == nil:
			t.index(o.h, false)
			if o.h.claim == nil {
				t.out(o.h)
				t.agree(o.h, released, now)
			}
		case foreign:
			t.index(o.h, false)
			t.clock.stamp(o.claim)
			if o.h.claim == o.claim {
				t.isForeign(o.h, owner, now)
				if o.dead != "" { // another of this batch is dead, but not this one
					o.h.dispute.silent = false
				}
			}
		default:
			t.index(o.h, true)
			t.clock.stamp(o.claim)
			o.h.checked = now
			t.isOurs(o, now)
		}
	}
}

// checked records what entries are.
func (t *table) checked(ops []op, found []any, err error, now time.Time) {
	for i, o := range ops {
		if err != nil {
			if o.h.state != forgotten {
				t.set(o.h, o.h.state.afterFailure())
			}
			continue
		}
		o.h.checked = now
		switch owner, _ := found[i].(string); {
		case o.h.claim != o.claim: // already changed
		case owner == t.id && o.h.indexed:
			t.isOurs(o, now)
		case owner == t.id || owner == "": // it landed but its reply was lost, or it was lost
			t.set(o.h, unconfirmed)
			t.enqueue(o.h, true)
		default:
			t.isForeign(o.h, owner, now)
			t.unindex(o.h)
		}
	}
}

// isOurs records that an entry names this instance, unless a newer claim or a release is queued.
func (t *table) isOurs(o op, now time.Time) {
	if o.h.claim != o.claim {
		return
	}
	o.claim.landed = true
	o.claim.settled.happen()
	t.agree(o.h, standing, now)
}

// agree records that Redis agrees, which is final once no write of unknown fate can still land.
func (t *table) agree(h *holding, s state, now time.Time) {
	t.set(h, s)
	if h.late.After(now) {
		return
	}
	delete(t.again, h)
	if s == released && h.in == nil {
		t.forget(h)
	}
}

// retry queues every id that Redis disagrees about or a late write may still change. It also
// checks ids that were touched too soon after their last check. It runs every interval/10.
func (t *table) retry(now time.Time) {
	for h := range t.again {
		if h.state == standing && now.Sub(h.checked) < checkEvery {
			continue
		}
		t.enqueue(h, h.state != standing && h.state != foreign) // which are checked
	}
}

// suspect has every entry checked before others: Redis may have lost any. If all are gone, as after
// a FLUSHALL, they are restored unseen, in half the time.
func (t *table) suspect(gone bool) {
	for _, shard := range t.shards {
		for _, h := range shard {
			switch {
			case h.state != standing:
			case gone:
				t.set(h, unconfirmed)
				t.enqueue(h, true)
			default:
				t.put(h, &t.suspects)
			}
		}
	}
}

func (t *table) checkShard(shard int) {
	for _, h := range t.shards[shard] {
		t.checkStanding(h)
	}
}

func (t *table) checkStanding(h *holding) {
	if h.state == standing {
		t.enqueue(h, false)
	}
}
