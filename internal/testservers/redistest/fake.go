package redistest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Fake starts a miniredis that can be used within a testing/synctest bubble and
// returns the options of its clients; it ends with the test. Called in a bubble,
// keys expire and TIME runs by the bubble's clock. Clients are made and closed in
// the bubble too; closing is the test's job. A test may wrap the Dialer to put
// faults on the line.
//
// There is no socket: waiting on one is not idleness to synctest, so its clock
// would stand still.
func Fake(t testing.TB) *redis.Options {
	_, o := FakeServer(t)
	return o
}

// FakeServer is Fake with the server itself, for tests that watch or change what it answers.
func FakeServer(t testing.TB) (*miniredis.Miniredis, *redis.Options) {
	t.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	// The first Dial starts the server without a listener.
	first, err := m.Dial()
	require.NoError(t, err)
	require.NoError(t, first.Close())
	server := m.Server()
	t.Cleanup(m.Close)

	return m, &redis.Options{
		// Never dialled, and still an IP literal: go-redis looks a name up, and
		// the resolver's goroutines outlive the bubble that the next one meets.
		// Nothing listens there should somebody drop the Dialer.
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

// outbox is the server's end of a net.Pipe, with the buffer that a socket has.
// Without one, a server whose reply nobody reads yet stops reading, while the
// client, in the middle of writing a pipeline, does not read: both wait until
// the write times out, which a bubble's clock makes happen at once.
type outbox struct {
	net.Conn
	mu      sync.Mutex
	changed *sync.Cond // of what follows
	pending []byte
	closed  bool
}

func newOutbox(c net.Conn) *outbox {
	o := &outbox{Conn: c}
	o.changed = sync.NewCond(&o.mu)
	go o.send()
	return o
}

// Write takes b over and returns at once.
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

// Close drops what was not read, as a reset connection does.
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
			_ = o.Close() // the client has gone: the server's read says so too
		}
	}
}
