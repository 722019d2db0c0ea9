package console

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// connections bounds an HTTP server's open connections. At the bound a new one replaces the one
// that has waited longest for a request, or else been answered longest: idle and slow clients can
// neither keep a probe out nor use up the program's descriptors.
type connections struct {
	most int

	mu   sync.Mutex
	open map[net.Conn]*connection
}

type connection struct {
	answering bool // a whole request has arrived
	since     time.Time
}

type connectionKey struct{}

func bound(server *http.Server, most int) {
	c := &connections{most: most, open: map[net.Conn]*connection{}}
	next := server.Handler
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, conn)
	}
	server.ConnState = c.changed
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connectionKey{}).(net.Conn)
		c.answers(conn, true)
		defer c.answers(conn, false)
		next.ServeHTTP(w, r)
	})
}

func (c *connections) changed(conn net.Conn, state http.ConnState) {
	var surplus net.Conn
	c.mu.Lock()
	switch state {
	case http.StateNew:
		if len(c.open) >= c.most {
			surplus = c.least()
			delete(c.open, surplus)
		}
		c.open[conn] = &connection{since: time.Now()}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
	c.mu.Unlock()
	if surplus != nil {
		_ = surplus.Close()
	}
}

func (c *connections) answers(conn net.Conn, is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o := c.open[conn]; o != nil {
		o.answering, o.since = is, time.Now()
	}
}

// The caller holds mu.
func (c *connections) least() (conn net.Conn) {
	var least *connection
	for at, o := range c.open {
		if least == nil || least.answering && !o.answering ||
			least.answering == o.answering && o.since.Before(least.since) {
			conn, least = at, o
		}
	}
	return conn
}
