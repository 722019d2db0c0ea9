package registry

import "time"

// batchSize bounds one script: about 0.5 ms of the server's time.
const batchSize = 500

// enqueue has a device written (urgent) or looked at.
func (t *table) enqueue(d *device, urgent bool) {
	q := &t.checks
	if urgent {
		q = &t.urgent
	}
	if d.in == &t.urgent || d.in == q {
		return
	}
	d.dequeue()
	q.push(d)
	nudge(t.wake)
}

// nudge fills the one slot of a channel. Who is nudged already need not be again.
func nudge(slot chan struct{}) {
	select {
	case slot <- struct{}{}:
	default:
	}
}

// An op is one operation of a batch, decided when the batch is made.
type op struct {
	d     *device
	claim *Claim // whose; nil for a release
	seen  string // heal: the foreign value that may be overwritten
}

// A batch is what the writer does next, no IMEI twice.
type batch struct {
	register, heal, release, check []op
	late                           int // of heal: registrations that waited too long
}

// next begins a batch of what is most urgent.
func (t *table) next(now time.Time) (b batch) {
	t.batches++
	for range batchSize {
		d := t.urgent.pop()
		urgent := d != nil
		if d == nil {
			if d = t.checks.pop(); d == nil {
				break
			}
		}
		c, untried := d.claim, d.state.untried()
		if untried {
			t.set(d, unconfirmed)
		}
		switch {
		case c == nil:
			b.release = append(b.release, op{d: d})
		case untried && now.Sub(c.made) < fresh:
			b.register = append(b.register, op{d: d, claim: c})
		case urgent && t.proof(d, now):
			b.heal = append(b.heal, op{d: d, claim: c, seen: d.dispute.owner})
		case urgent && !d.state.disputed():
			if untried {
				b.late++
			}
			b.heal = append(b.heal, op{d: d, claim: c})
		default:
			b.check = append(b.check, op{d: d, claim: c})
		}
	}
	return b
}

// wanted leaves out of ops what was decided anew since the batch was made (it waits for the next
// one: a device that came back must not be released behind its back), and what rests on proof that
// has aged.
func (t *table) wanted(ops []op, now time.Time) []op {
	kept := ops[:0]
	for _, o := range ops {
		if o.d.claim == o.claim && (o.seen == "" || t.proof(o.d, now)) {
			kept = append(kept, o)
		}
	}
	return kept
}

// ended ends a batch.
func (t *table) ended(err error) {
	t.batches++
	t.away = err != nil
}

// takeAsks returns what other instances are to be asked, once.
func (t *table) takeAsks() map[string][]*Claim {
	asks := t.asks
	if len(asks) > 0 {
		t.asks = make(map[string][]*Claim)
	}
	return asks
}

// wrote notes what a script did, or that nobody knows what it did.
func (t *table) wrote(ops []op, got reply, err error, now time.Time) {
	for _, o := range ops {
		owner, foreign := got.foreign[o.d.imei]
		switch {
		case o.d.state == forgotten:
			t.mislay(now)
		case err != nil:
			t.lateUntil = now.Add(t.ttl)
			t.change(o.d, o.d.state.doubted(), t.lateUntil)
		case o.claim == nil:
			t.index(o.d, false)
			if o.d.claim == nil {
				t.settle(o.d, released, now)
			}
		case foreign:
			if o.d.claim == o.claim {
				t.set(o.d, o.d.state.doubted()) // the proof was against what is there no more
				t.isForeign(o.d, owner, now)
			}
		default:
			t.index(o.d, true)
			o.d.checked = now
			t.isOurs(o, now)
		}
	}
}

// looked notes what entries are: found has the owners in the order of ops, nil where there is none.
func (t *table) looked(ops []op, found []any, err error, now time.Time) {
	for i, o := range ops {
		if err != nil {
			if o.d.state != forgotten {
				t.set(o.d, o.d.state.doubted())
			}
			continue
		}
		o.d.checked = now
		switch owner, _ := found[i].(string); {
		case o.d.claim != o.claim: // decided anew already
		case owner == t.id && o.d.indexed:
			t.isOurs(o, now)
		case owner == t.id || owner == "": // landed, though its reply was lost; or the entry was
			t.set(o.d, unconfirmed)
			t.enqueue(o.d, true)
		default:
			t.isForeign(o.d, owner, now)
		}
	}
}

// isOurs notes that an entry names this instance, unless a newer claim, or a release, is queued.
func (t *table) isOurs(o op, now time.Time) {
	if o.d.claim == o.claim {
		closeOnce(o.claim.landed)
		t.settle(o.d, standing, now)
	}
}

// settle notes that Redis agrees.
func (t *table) settle(d *device, s state, now time.Time) {
	if d.late.After(now) {
		t.set(d, s)
		return
	}
	t.change(d, s, time.Time{})
	delete(t.unsettled, d)
	if s == released && d.in == nil {
		t.forget(d)
	}
}

// retry has everything tried again that is not settled or may yet be changed by a late write, and
// what a frame came for too soon. It is called every interval/10.
func (t *table) retry(now time.Time) {
	for d := range t.unsettled {
		// A foreign entry that there is no proof against is looked at, to see whether it is free
		// now.
		t.enqueue(d, d.state == proven || d.state != standing && !d.state.disputed())
	}
	for d := range t.recheck {
		if d.claim == nil || t.check(d, now) {
			delete(t.recheck, d)
		}
	}
}

// checkShard has a tenth of what is believed to stand looked at.
func (t *table) checkShard(shard int) {
	for _, d := range t.shards[shard] {
		t.suspect(d)
	}
}

// suspect has an entry looked at that is believed to stand.
func (t *table) suspect(d *device) {
	if d.state == standing {
		t.enqueue(d, false)
	}
}
