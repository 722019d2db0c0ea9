package registry

import (
	"context"
	"errors"
	"time"
)

// ErrReleased is returned by Claim.Wait when the claim ended before its registration landed.
var ErrReleased = errors.New("registry: claim was released")

const (
	// fresh is how long a handshake is evidence enough to overwrite a foreign entry.
	fresh = time.Second
	// checkEvery bounds how often a device's frames have its entry looked at.
	checkEvery = time.Second
	// defaultSpare is how many devices that are not held are remembered besides as many as are held,
	// while writes fail.
	defaultSpare = 10_000
)

// A Claim is what a socket holds while its device is registered through it. It is usable from the
// moment Register returns, whatever Redis does. Its methods never block, but for Wait, and are
// safe for concurrent use.
type Claim struct {
	r          *Registry
	d          *device
	made       time.Time
	heard      time.Time     // when the device was last heard here: a frame, or the handshake
	told       time.Time     // when Config.OnDisplaced was last told of it
	tried      bool          // a registration was attempted
	landed     chan struct{} // closed when the entry is known to stand
	isLanded   bool
	superseded chan struct{} // closed when a newer claim of the same IMEI was made here
	over       chan struct{} // closed when released or superseded
	isOver     bool
}

// device is what this replica wants for one IMEI and believes of it. Guarded by Registry.mu.
type device struct {
	imei       string
	claim      *Claim  // the newest one; nil: the device is not held
	in         *queue  // where it waits for the writer; nil: it does not
	prev, next *device // in that queue
	settled    bool    // Redis is believed to agree with claim
	written    bool    // Redis was asked to write it, so that something of it may stand there
	indexed    bool    // believed to be in the index
	gone       bool    // forgotten: what is still under way does not count
	dispute    *dispute
	checked    time.Time // when Redis last said what the entry is
	unsure     time.Time // until then a write of unknown fate may still land
	wrote      uint64    // Registry.batches when indexed was last set
	scanned    uint64    // the index scan that last met it
	shard      int       // which of Registry.shards it is in, and where there
	place      int
}

// Register claims a device for this instance: the newest claim of an IMEI wins, on this replica too,
// where the older one's Superseded is closed. It never fails: the registration is written in the
// background, together with others, and healed later if Redis is away. An imei, or any other id of a device, must have no
// spaces and must not begin with "/": replicas name devices to each other in words. ctx ends nothing; a claim ends by
// Release.
func (r *Registry) Register(imei string) *Claim {
	now := time.Now()
	c := &Claim{
		r: r, made: now, heard: now,
		landed: make(chan struct{}), superseded: make(chan struct{}), over: make(chan struct{}),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.device(imei)
	c.d = d
	if old := d.claim; old != nil {
		close(old.superseded)
		old.end()
	} else {
		r.held++
	}
	r.change(d, func() { d.claim, d.settled, d.dispute = c, false, nil })
	r.enqueue(d, true)
	return c
}

// device returns the state of an IMEI, made if there is none. Caller holds mu.
func (r *Registry) device(imei string) *device {
	d := r.devices[imei]
	if d == nil {
		d = &device{imei: imei, shard: r.made / batchSize % shards}
		r.made++
		d.place = len(r.shards[d.shard])
		r.shards[d.shard] = append(r.shards[d.shard], d)
		r.devices[imei] = d
		r.count(d, 1)
	}
	return d
}

// change changes what the counters count of a device, and keeps them true. Caller holds mu.
func (r *Registry) change(d *device, f func()) {
	r.count(d, -1)
	f()
	r.count(d, 1)
}

// count adds what a device counts for, n times, to what a walk over all devices would find.
func (r *Registry) count(d *device, n int) {
	if d.dispute != nil {
		r.disputed += n
	}
	if d.settled {
		return
	}
	r.pending += n
	if d.claim == nil {
		r.unreleased += n
	}
	if !d.unsure.IsZero() {
		r.vague += n
	}
}

// forget drops the state of a device that is not held. The newest of its shard takes its place: the order is a help, and no promise. Caller
// holds mu.
func (r *Registry) forget(d *device) {
	r.count(d, -1)
	r.index(d, false)
	d.gone = true
	d.dequeue()
	delete(r.watched, d)
	delete(r.owed, d)
	delete(r.devices, d.imei)
	shard := r.shards[d.shard]
	last := len(shard) - 1
	shard[last].place = d.place
	shard[d.place] = shard[last]
	shard[last] = nil
	r.shards[d.shard] = shard[:last]
}

// end closes what waits on the claim. Caller holds mu.
func (c *Claim) end() {
	if !c.isOver {
		c.isOver = true
		close(c.over)
	}
}

// land notes that the claim's entry stands. Caller holds mu.
func (c *Claim) land() {
	if !c.isLanded {
		c.isLanded = true
		close(c.landed)
	}
}

// Wait returns nil once the registration has landed, ErrReleased if the claim ended before that, or the
// cause of ctx's end.
func (c *Claim) Wait(ctx context.Context) error {
	select {
	case <-c.landed:
		return nil
	case <-c.over:
		select {
		case <-c.landed:
			return nil
		default:
			return ErrReleased
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Superseded is closed when a newer claim of the same IMEI was made on this replica: the device
// has a newer socket, and the one that holds this claim is to be closed.
func (c *Claim) Superseded() <-chan struct{} { return c.superseded }

// Release hands the device back. It never blocks, needs no context and may be called more than
// once. The release of a claim that is not the newest of its IMEI changes nothing.
func (c *Claim) Release() {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	c.end()
	if c.d.claim != c {
		return
	}
	d := c.d
	r.change(d, func() { d.claim, d.settled, d.dispute = nil, false, nil })
	r.held--
	switch left := len(r.devices) - r.held; {
	case !d.written: // Redis was never asked: there is nothing to take out
		r.forget(d)
	case r.away && left > r.held+r.spare:
		r.forget(d)
		r.mislay()
	default:
		r.enqueue(d, true)
	}
	if r.boot == "" {
		r.changed.Broadcast() // nothing will be written: see drained
	}
}

// FrameReceived says that a frame of the device arrived through this claim's socket. It has the entry looked at,
// at most once a second: what comes sooner is made up for within a second and interval/10, so that a lost entry is back
// at the device's next frame also if that is its last for hours. It may complete the evidence against a foreign claim, which then
// counts for a second.
func (c *Claim) FrameReceived() {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	d := c.d
	if d.claim != c {
		return
	}
	c.heard = time.Now()
	if d.dispute != nil && d.dispute.evidence >= acknowledged {
		d.dispute.evidence = proven
		r.enqueue(d, true)
		return
	}
	if !r.verify(d) {
		r.owed[d] = struct{}{}
	}
}

// verify has a settled device's entry looked at, unless that was done within a second. Caller holds mu.
func (r *Registry) verify(d *device) bool {
	now := time.Now()
	if !d.settled {
		return true // it is looked at until it is
	}
	if now.Sub(d.checked) < checkEvery {
		return false
	}
	d.checked = now
	r.enqueue(d, false)
	return true
}

// FrameAcked says that a frame of the device was acknowledged through this claim's socket.
func (c *Claim) FrameAcked() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if t := c.d.dispute; c.d.claim == c && t != nil && t.evidence == foreignSeen {
		t.evidence = acknowledged
	}
}
