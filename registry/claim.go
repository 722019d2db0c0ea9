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
)

// A Claim is what a socket holds while its device is registered through it. It is usable from the
// moment Register returns, whatever Redis does. Its methods never block, but for Wait, and are
// safe for concurrent use.
type Claim struct {
	r          *Registry
	d          *device
	made       time.Time
	tried      bool          // a registration was attempted
	landed     chan struct{} // closed when the entry is known to stand
	isLanded   bool
	superseded chan struct{} // closed when a newer claim of the same IMEI was made here
	over       chan struct{} // closed when released or superseded
	isOver     bool
}

// evidence that a device is really at the other end of its socket, collected while its entry
// names another instance.
type evidence uint8

const (
	none         evidence = iota
	foreignSeen           // this replica has seen the foreign claim
	acknowledged          // and acknowledged a frame after that
	proven                // and a further frame arrived: the device got the acknowledgement
)

// device is what this replica wants for one IMEI and believes of it. Guarded by Registry.mu.
type device struct {
	imei     string
	claim    *Claim // the newest one; nil: the device is not held
	queued   bool
	urgent   bool // queued to be written, not only to be looked at
	settled  bool // Redis is believed to agree with claim
	indexed  bool // believed to be in the index
	foreign  string
	evidence evidence
	checked  time.Time // when Redis last said what the entry is
	unsure   time.Time // until then a write of unknown fate may still land
	wrote    uint64    // Registry.batches when indexed was last set
	scanned  uint64    // the index scan that last met it
	shard    int       // which of Registry.shards it is in, and where there
	place    int
}

// Register claims a device for this instance: the newest claim of an IMEI wins, on this replica too,
// where the older one's Superseded is closed. It never fails: the registration is written in the
// background, together with others, and healed later if Redis is away. ctx ends nothing; a claim ends by
// Release.
func (r *Registry) Register(_ context.Context, imei string) *Claim {
	c := &Claim{
		r: r, made: time.Now(),
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
	d.claim = c
	d.settled = false
	d.foreign, d.evidence = "", none
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
	}
	return d
}

// forget drops the state of a device that is not held. The newest of its shard takes its place: the order is a help, and no promise. Caller
// holds mu.
func (r *Registry) forget(d *device) {
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
	c.d.claim = nil
	c.d.settled = false
	c.d.foreign, c.d.evidence = "", none
	r.held--
	r.enqueue(c.d, true)
	if r.boot == "" {
		r.changed.Broadcast() // nothing will be written: see drained
	}
}

// Arrived says that a frame of the device arrived through this claim's socket. It has the entry looked at,
// at most once a second: what comes sooner is made up for within a second and interval/10, so that a lost entry is back
// at the device's next frame also if that is its last for hours. It may complete the evidence against a foreign claim.
func (c *Claim) Arrived() {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	d := c.d
	if d.claim != c {
		return
	}
	if d.evidence == acknowledged {
		d.evidence = proven
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

// Acknowledged says that a frame of the device was acknowledged through this claim's socket.
func (c *Claim) Acknowledged() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.d.claim == c && c.d.evidence == foreignSeen {
		c.d.evidence = acknowledged
	}
}
