package registry

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// maxID bounds the id of a device. A batch has up to 500, and one that is too large for Redis would
// fail all the others again and again.
const maxID = 1024

// ErrIDTooLong is returned by Claim.Wait if the id that was registered has more than 1024 bytes.
// Nothing is written of such a device, and nobody can look it up.
var ErrIDTooLong = errors.New("registry: the id of a device has more than 1024 bytes")

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
	err    error         // why it never will; set before the claim is handed out

	// Guarded by Registry.mu.
	d     *device
	heard time.Time // when the device was last heard here: a frame, or the handshake
	told  time.Time // when Config.OnDisplaced was last told of it
}

// Register claims a device for this instance: the newest claim of an IMEI wins, on this replica
// too. It never fails: the registration is written in the background, together with others, and
// healed later if Redis is away. A claim ends by Release. An id may be any string of up to 1024
// bytes. A longer one is refused: it is counted as a failed registration, the claim's Wait returns
// ErrIDTooLong, and its other methods do nothing. A claim that is made after Run ended is over at
// once.
//
// If the new claim supersedes an older one of this replica, Register calls Config.OnSuperseded with
// the older one before it returns. The device may register a third time before the caller of this
// Register has filed its socket under the new claim. OnSuperseded is then told of a claim that no
// socket is filed under. It must remember such a claim; the caller, after it filed the socket, must
// check whether its claim is among them.
func (r *Registry) Register(imei string) *Claim {
	c := newClaim(r, time.Now())
	if len(imei) > maxID {
		return r.refuse(c, imei)
	}
	r.mu.Lock()
	older := r.table.register(c, imei)
	r.mu.Unlock()
	if older != nil && r.cfg.OnSuperseded != nil {
		r.cfg.OnSuperseded(older)
	}
	return c
}

// refuse ends a claim that will never be written.
func (r *Registry) refuse(c *Claim, imei string) *Claim {
	c.d, c.err = &device{}, ErrIDTooLong
	close(c.done)
	r.metrics.failures.WithLabelValues("register").Inc()
	r.longID.Do(func() {
		r.log.Error("a device's id is too long to be registered, it is served and not routable",
			"bytes", len(imei), "most", maxID, "begins", imei[:32])
	})
	return c
}

func newClaim(r *Registry, now time.Time) *Claim {
	return &Claim{r: r, made: now, heard: now, done: make(chan struct{})}
}

// Wait returns nil once the registration has landed, ErrReleased if the claim or Registry.Run ended
// before that, ErrIDTooLong, or the cause of ctx's end.
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
	return cmp.Or(c.err, ErrReleased)
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
