package registry

import (
	"cmp"
	"context"
	"errors"
	"time"
)

// maxID bounds the id of a socket: one too large for Redis would fail its batch of up to 500 again
// and again.
const maxID = 1024

// ErrIDTooLong is returned by Claim.Wait for an id of more than 1024 bytes. Such a socket is not
// written, and cannot be looked up.
var ErrIDTooLong = errors.New("registry: the id of a socket has more than 1024 bytes")

// ErrReleased is returned by Claim.Wait if the claim, or Run, ended before the registration landed.
var ErrReleased = errors.New("registry: claim was released")

// A Claim is a socket's hold on the registration of its id, whatever Redis does. Only Wait blocks.
// All methods are safe for concurrent use.
type Claim struct {
	r      *Registry
	made   time.Time
	done   chan struct{} // closed when the entry has landed, or the claim has ended
	landed bool          // the entry has landed; set before done is closed, never after
	err    error         // why it never will; set before the claim is returned

	// Guarded by Registry.mu.
	h     *holding
	heard time.Time // when the other end was last heard here: a frame, or the handshake
	told  time.Time // when Config.OnDisplaced was last called for it
	older bool      // superseded
	// superseded is made when it is asked for: most claims need none.
	superseded chan struct{}
}

// Register claims an id for this instance: the newest claim of an id wins, even on the same
// replica. It never fails: the registration is written in the background, and healed later if Redis
// is down. An id of more than 1024 bytes counts as a failed registration. A claim made after Run
// ended is over at once.
//
// If the claim supersedes an older one of this replica, that one's Superseded is closed before
// Register returns.
func (r *Registry) Register(id string) *Claim {
	c := newClaim(r, time.Now())
	if len(id) > maxID {
		return r.refuse(c, id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if older := r.table.register(c, id); older != nil {
		older.supersede()
	}
	r.claimed++
	return c
}

func (r *Registry) refuse(c *Claim, id string) *Claim {
	c.h, c.err = &holding{}, ErrIDTooLong
	close(c.done)
	r.metrics.failures.WithLabelValues("register").Inc()
	r.longID.Do(func() {
		r.log.Error("id is too long to register; the socket is served but not routable",
			"bytes", len(id), "most", maxID, "begins", id[:32])
	})
	return c
}

func newClaim(r *Registry, now time.Time) *Claim {
	return &Claim{r: r, made: now, heard: now, done: make(chan struct{})}
}

// Wait returns nil once the registration has landed, ErrReleased if the claim or Registry.Run ended
// before, ErrIDTooLong, or the cause of ctx's end.
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

// Superseded is closed once the id has registered again on this replica: close this claim's socket.
// For several sockets of one user register ids such as "user|device". A claim superseded before its
// socket is known has the channel closed too. Other replicas do not close it; see
// Config.OnDisplaced.
func (c *Claim) Superseded() <-chan struct{} {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.superseded == nil {
		c.superseded = make(chan struct{})
		if c.older {
			close(c.superseded)
		}
	}
	return c.superseded
}

// supersede is called once, with mu held.
func (c *Claim) supersede() {
	c.older = true
	if c.superseded != nil {
		close(c.superseded)
	}
}

// Release hands the id back. It may be called again. It changes nothing unless the claim is the
// newest of its id.
func (c *Claim) Release() {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.release(c, time.Now())
	if r.boot == "" {
		r.changed.Broadcast() // nothing will be written; see drained
	}
}

// FrameReceived reports a frame of the other end on this claim's socket. It has the entry checked,
// at most once a second, so that a lost entry is back at the next frame; a frame too soon causes a
// check within a second and interval/10. It may also complete the evidence against a foreign claim.
func (c *Claim) FrameReceived() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.table.frameReceived(c, time.Now())
}

// FrameAcked reports that a frame of the other end was acknowledged on this claim's socket.
func (c *Claim) FrameAcked() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.table.frameAcked(c)
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
