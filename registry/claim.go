package registry

import (
	"context"
	"errors"
	"time"
)

// maxID bounds the id of a socket: one too large for Redis would fail its batch of up to 500 again
// and again.
const maxID = 1024

// contestedWithin is how young a socket is that clients take from each other.
const contestedWithin = time.Minute

// Reasons for which a claim has ended; see Claim.Err.
var (
	// ErrReleased means that Release was called.
	ErrReleased = errors.New("registry: the claim was released")
	// ErrNoAnswer means that another replica has an older socket of the id, and Socket.Ping failed
	// here.
	ErrNoAnswer = errors.New("registry: the socket did not answer a ping")
	// ErrTaken means that a writer that lives and answers no questions has written its own name over
	// the id. A client that connects again overwrites that.
	ErrTaken = errors.New("registry: another writer has taken the id")
	// ErrStopping means that Run's context has ended, or Run.
	ErrStopping = errors.New("registry: this replica stops")
	// ErrIDTooLong means that the id has more than 1,024 bytes. It is not written.
	ErrIDTooLong = errors.New("registry: the id of a socket has more than 1024 bytes")
)

// MovedError means that the id has a newer socket at the instance To, which may be this one. Tell
// the client not to connect again: if two clients share an id, each would take it from the other.
type MovedError struct{ To string }

func (e MovedError) Error() string { return "registry: a newer socket of this id is at " + e.To }

// A Socket is what the registry may do with a socket.
type Socket struct {
	// Close ends the socket. Required. It is called at most once, in a goroutine of its own, when
	// the claim ends other than by Release. It may return before the socket has ended, and be under
	// way when Release is called.
	Close func() error
	// Ping returns nil only if the other end has answered this call, for example a WebSocket ping
	// with a number of its own. Messages that arrive meanwhile may have waited in some buffer and
	// prove nothing. If set, it is called, in a goroutine of its own, before an older socket of
	// another replica is closed for this one; if it fails, this one is closed. So a handshake that
	// was read late closes nothing. It should return when ctx ends, after five seconds, and has
	// failed then.
	Ping func(ctx context.Context) error
}

// A Claim is a socket's hold on the registration of its id, whatever Redis does. Only Wait blocks.
// All methods are safe for concurrent use.
type Claim struct {
	r    *Registry
	sock Socket
	made time.Time // the handshake

	// Guarded by Registry.mu.
	h              *holding
	at             int64 // made by the server's clock, and what it had stepped back until then; 0: unknown
	landed         bool
	settled, ended event     // settled: it has landed, or ended before
	why            error     // set when it ends
	said, verified time.Time // when another owner was last answered, and when the last ping was
	pinging        bool
}

// An event happens once. Until then it has a channel if somebody has asked for it.
type event struct{ c chan struct{} }

var happened = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (e *event) happen() {
	if e.c != nil && e.c != happened {
		close(e.c)
	}
	e.c = happened
}

func (e *event) wait() <-chan struct{} {
	if e.c == nil {
		e.c = make(chan struct{})
	}
	return e.c
}

// Register claims an id for this instance, and calls nothing. The time of the call is the socket's
// handshake: of all sockets of an id, on all replicas, the newest wins and the others are closed.
// An older one of this replica is closed at once.
//
// It never fails: the registration is written in the background, and healed later if Redis is down.
// The claim of an id that is too long, and one made after Run ended, is over at once. It panics if
// s.Close is nil.
func (r *Registry) Register(id string, s Socket) *Claim {
	if s.Close == nil {
		panic("registry: Register needs Socket.Close")
	}
	c := &Claim{r: r, sock: s, made: time.Now(), h: &holding{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(id) > maxID {
		c.end(ErrIDTooLong)
		r.metrics.failures.WithLabelValues("register").Inc()
		return c
	}
	r.table.register(c, id)
	r.claimed++
	return c
}

// end is called with mu held. The claim is in no table any more, or its owner has to release it.
func (c *Claim) end(why error) {
	if c.why != nil {
		return
	}
	c.why = why
	if errors.As(why, new(MovedError)) && time.Since(c.made) < contestedWithin {
		c.r.metrics.contested.Inc()
	}
	c.settled.happen()
	c.ended.happen()
	if !errors.Is(why, ErrReleased) {
		go func() { _ = c.sock.Close() }()
	}
}

// Wait returns nil once the registration has landed, Err if the claim ended before, or the cause of
// ctx's end.
func (c *Claim) Wait(ctx context.Context) error {
	c.r.mu.Lock()
	settled := c.settled.wait()
	c.r.mu.Unlock()
	select {
	case <-settled:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.landed {
		return nil
	}
	return c.why
}

// Done is closed when the claim has ended.
func (c *Claim) Done() <-chan struct{} {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	return c.ended.wait()
}

// Err returns why the claim has ended, nil if it has not: a MovedError, ErrReleased, ErrNoAnswer,
// ErrTaken, ErrStopping, ErrReplaced or ErrIDTooLong.
func (c *Claim) Err() error {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	return c.why
}

// Release hands the id back: the socket has ended. It may be called again. It changes nothing
// unless the claim is the newest of its id.
func (c *Claim) Release() {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.table.release(c, time.Now())
	c.end(ErrReleased)
	if r.boot == "" {
		r.changed.Broadcast() // nothing will be written; see drained
	}
}

// Touch reports that the socket is in use. It has the entry checked, at most once a second, so that
// a lost one is back at the next message. If it comes too soon, the check follows within a second
// and interval/10. It is a hint: it does not prove that the other end is alive.
func (c *Claim) Touch() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.table.touch(c, time.Now())
}

func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
