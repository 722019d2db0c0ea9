package search

import (
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// state is how a replica's line to the server is.
type state int

const (
	works state = iota
	cut         // connections are reset, and new ones fail at once
	hangs       // nothing arrives; what was sent lands when the line works again
	deaf        // requests arrive, replies do not
)

// name is what replicas dial, and where it leads to.
type name struct{ atomic.Pointer[redisServer] }

// line is the network between one replica and the server.
type line struct {
	to *name

	mu      sync.Mutex
	is      state
	dead    bool    // for ever: its process was killed
	refused refusal // this replica alone
	open    map[*conn]bool
	// turned is when the server first turned this replica away since it last let it in, told when
	// it last did; cutAt when the line last was anything but working.
	turned, told, cutAt time.Time
	by                  refusal
}

func newLine(to *name) *line { return &line{to: to, open: map[*conn]bool{}} }

// dialer is that of one of a replica's clients.
func (l *line) dialer(client string) func(ctx context.Context, _, _ string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx, client) }
}

func (l *line) dial(ctx context.Context, client string) (net.Conn, error) {
	l.mu.Lock()
	is, refused := l.is, l.refused
	l.mu.Unlock()
	if is != works {
		return nil, errAway // at once, see Read
	}
	inner, by, err := l.to.Load().dial(ctx, refused)
	l.mu.Lock()
	defer l.mu.Unlock()
	if by != welcome {
		if l.turned.IsZero() {
			l.turned = time.Now()
		}
		l.told, l.by = time.Now(), by
	}
	if by == welcome && err == nil {
		l.turned = time.Time{}
	}
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: inner, l: l, client: client}
	l.open[c] = true
	return c, nil
}

// become changes the line's state. What was held back lands when it works again.
func (l *line) become(is state) {
	l.mu.Lock()
	if l.dead {
		is = cut
	}
	was := l.is
	l.is = is
	if was != works || is != works {
		l.cutAt = time.Now()
	}
	var reset, late []*conn
	for c := range l.open {
		switch {
		case is == cut && (was != hangs || l.dead):
			reset = append(reset, c)
		case is == works && was == hangs:
			late = append(late, c)
		}
	}
	l.mu.Unlock()
	for _, c := range reset {
		_ = c.Conn.Close()
	}
	for _, c := range late {
		c.land()
	}
}

// reset breaks the connections of one client on a line that works, or of all.
func (l *line) reset(client string) {
	l.mu.Lock()
	var all []*conn
	for c := range l.open {
		if client == "" || c.client == client {
			all = append(all, c)
		}
	}
	l.mu.Unlock()
	for _, c := range all {
		_ = c.Conn.Close()
	}
}

// kill cuts the line for ever. What a line that hung holds back may still land, once.
func (l *line) kill(lands bool) {
	if lands {
		l.become(works)
	}
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.become(cut)
}

func (l *line) now() state {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.is
}

// conn is one connection on a line.
type conn struct {
	net.Conn
	l      *line
	client string

	mu     sync.Mutex
	held   []byte // sent while the line hung
	broken bool   // something was sent while it hung, so that no reply fits its request
	closed bool   // by the client, with something held
}

func (c *conn) Write(p []byte) (int, error) {
	if c.l.now() != hangs {
		return c.Conn.Write(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held, c.broken = append(c.held, p...), true
	return len(p), nil
}

// Read fails at once while the line does not work, as if the deadline had passed. Replicas read
// with mutexes held, and a goroutine that waits for one is not idle: the bubble's clock would stop.
func (c *conn) Read(p []byte) (int, error) {
	if c.l.now() != works {
		return 0, os.ErrDeadlineExceeded
	}
	n, err := c.Conn.Read(p)
	if err == nil && c.l.now() != works {
		return 0, os.ErrDeadlineExceeded
	}
	return n, err
}

func (c *conn) Close() error {
	c.mu.Lock()
	later := len(c.held) > 0 && c.l.now() == hangs
	c.closed = later
	c.mu.Unlock()
	if later {
		return nil // what it holds lands when the line works again
	}
	return c.shut()
}

func (c *conn) shut() error {
	c.l.mu.Lock()
	delete(c.l.open, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// land sends what was held.
func (c *conn) land() {
	c.mu.Lock()
	held, broken := c.held, c.broken
	c.held = nil
	c.mu.Unlock()
	if len(held) > 0 {
		_ = c.Conn.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Conn.Write(held)
	}
	if broken {
		_ = c.shut()
	}
}

// refuse has the server turn this replica away, alone.
func (l *line) refuse(by refusal) {
	l.mu.Lock()
	l.refused = by
	l.mu.Unlock()
}
