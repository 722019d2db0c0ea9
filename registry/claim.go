package registry

import (
	"context"
	"errors"
	"time"
)

// ErrReleased is returned by Claim.Wait when the claim ended before its registration landed, or Run
// did.
var ErrReleased = errors.New("registry: claim was released")

// A Claim is what a socket holds while its device is registered through it. It is usable from the
// moment Register returns, whatever Redis does. Only Wait blocks. All methods are safe for
// concurrent use.
type Claim struct {
	r      *Registry
	made   time.Time
	done   chan struct{} // closed when the entry is known to stand, or the claim has ended
	landed bool          // the entry is known to stand; set before done is closed, never after

	// Guarded by Registry.mu.
	d     *device
	heard time.Time // when the device was last heard here: a frame, or the handshake
	told  time.Time // when Config.OnDisplaced was last told of it
}

// Register claims a device for this instance: the newest claim of an IMEI wins, on this replica
// too. It never fails: the registration is written in the background, together with others, and
// healed later if Redis is away. A claim ends by Release. An imei, or any other id of a device,
// must have no spaces and must not begin with "/": replicas name devices to each other in words.
//
// If the new claim supersedes an older one of this replica, Register calls Config.OnSuperseded with
// the older one before it returns. The device may register a third time before the caller of this
// Register has filed its socket under the new claim. OnSuperseded is then told of a claim that no
// socket is filed under. It must remember such a claim; the caller, after it filed the socket, must
// check whether its claim is among them.
func (r *Registry) Register(imei string) *Claim {
	c := newClaim(r, time.Now())
	r.mu.Lock()
	older := r.table.register(c, imei)
	r.mu.Unlock()
	if older != nil && r.cfg.OnSuperseded != nil {
		r.cfg.OnSuperseded(older)
	}
	return c
}

func newClaim(r *Registry, now time.Time) *Claim {
	return &Claim{r: r, made: now, heard: now, done: make(chan struct{})}
}

// Wait returns nil once the registration has landed, ErrReleased if the claim or Registry.Run ended
// before that, or the cause of ctx's end.
func (c *Claim) Wait(ctx context.Context) error {
	select {
	case <-c.done:
	case <-c.r.ended:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.landed {
		return nil
	}
	return ErrReleased
}

// Release hands the device back. It never blocks, needs no context and may be called more than
// once. The release of a claim that is not the newest of its IMEI changes nothing.
func (c *Claim) Release() {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.release(c, time.Now())
	if r.boot == "" {
		r.changed.Broadcast() // nothing will be written: see drained
	}
}

// FrameReceived says that a frame of the device arrived through this claim's socket. It has the
// entry checked, at most once a second. A frame that arrives sooner after a check has the entry
// checked later, within a second and interval/10. So a lost entry is back at the device's next
// frame, also if that is its last one for hours. The frame may complete the evidence against a
// foreign claim; then it counts for a second.
func (c *Claim) FrameReceived() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.table.frameReceived(c, time.Now())
}

// FrameAcked says that a frame of the device was acknowledged through this claim's socket.
func (c *Claim) FrameAcked() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.table.frameAcked(c)
}

// closeOnce closes a channel that only holders of Registry.mu close.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
