// Package fakeredis is a Redis in this process, for testing/synctest.
package fakeredis

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Start starts a miniredis that works inside a testing/synctest bubble, where keys expire and TIME
// advances by the bubble's clock. Clients are created and closed in the bubble too; closing them is
// the test's job. A test may wrap the Dialer to inject faults.
//
// There is no socket: synctest does not count waiting on one as idle, so its clock would not
// advance.
func Start(t testing.TB) (*miniredis.Miniredis, *redis.Options) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	// The first Dial starts the server without a listener.
	first, err := m.Dial()
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close() // nothing was sent
	server := m.Server()
	t.Cleanup(m.Close)

	return m, &redis.Options{
		// Never dialled, but an IP literal anyway: go-redis resolves names, and the resolver's
		// goroutines would outlive the bubble and affect the next one.
		Addr:       "127.0.0.1:1",
		MaxRetries: -1, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if m.Ctx.Err() != nil {
				return nil, net.ErrClosed
			}
			ours, theirs := net.Pipe()
			server.ServeConn(newOutbox(theirs))
			return ours, nil
		},
	}
}

// outbox is the server's end of a net.Pipe, with a buffer like a socket's. Without one, a server
// whose reply nobody reads yet stops reading, while a client that is still writing a pipeline does
// not read either: both would wait for the write to time out, which is immediate by a bubble's
// clock.
type outbox struct {
	net.Conn
	mu      sync.Mutex
	changed *sync.Cond // for the fields below
	pending []byte
	closed  bool
}

func newOutbox(c net.Conn) *outbox {
	o := &outbox{Conn: c}
	o.changed = sync.NewCond(&o.mu)
	go o.send()
	return o
}

// Write never blocks.
func (o *outbox) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return 0, net.ErrClosed
	}
	o.pending = append(o.pending, b...)
	o.changed.Signal()
	return len(b), nil
}

// Close drops unread data, as a reset connection does.
func (o *outbox) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.changed.Signal()
	return o.Conn.Close()
}

func (o *outbox) send() {
	for {
		o.mu.Lock()
		for len(o.pending) == 0 && !o.closed {
			o.changed.Wait()
		}
		b, closed := o.pending, o.closed
		o.pending = nil
		o.mu.Unlock()
		if closed {
			return
		}
		if _, err := o.Conn.Write(b); err != nil {
			_ = o.Close() // the client has gone; the server's read fails too
		}
	}
}
