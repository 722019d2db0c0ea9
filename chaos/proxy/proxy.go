package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy is the network between a replica and Redis.
type Proxy struct {
	listener net.Listener
	ctx      context.Context
	end      context.CancelFunc
	pumps    sync.WaitGroup

	unclear atomic.Int64

	mu     sync.Mutex // guards all below
	rules  []*Rule    // never changed in place
	scores []*Score   // likewise
	to     string
	conns  map[*conn]struct{}
}

// New opens a proxy until the test ends.
func New(t *testing.T, to string) *Proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: listener, to: to, conns: map[*conn]struct{}{}}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.pumps.Go(func() {
		for {
			replica, err := listener.Accept()
			if err != nil {
				return
			}
			p.pumps.Go(func() { p.serve(replica.(*net.TCPConn)) })
		}
	})
	t.Cleanup(p.close)
	return p
}

// Addr returns the address for the client.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// NotUnderstood counts the connections that became a plain pipe, to which no rule applies.
func (p *Proxy) NotUnderstood() int { return int(p.unclear.Load()) }

// close loses anything held back, and leaves no goroutine.
func (p *Proxy) close() {
	p.end()
	_ = p.listener.Close() // fails only if it was closed before
	p.each(func(c *conn) {
		_ = c.replica.Close()
		if c.server != nil {
			_ = c.server.Close()
		}
	})
	p.pumps.Wait()
}

func (p *Proxy) present() ([]*Rule, []*Score) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules, p.scores
}

func (p *Proxy) each(f func(c *conn)) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		f(c)
	}
	return len(p.conns)
}

// Connections counts the replica's open connections.
func (p *Proxy) Connections() int { return p.each(func(*conn) {}) }

// Reset resets the replica's connections and counts them. Requests under way still arrive.
func (p *Proxy) Reset() int { return p.each((*conn).reset) }

// Retarget resets connections, and sends further ones to another server: a failover.
func (p *Proxy) Retarget(to string) int {
	p.mu.Lock()
	p.to = to
	p.mu.Unlock()
	return p.Reset()
}

func (p *Proxy) add(c *conn, server *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.server = server
	p.conns[c] = struct{}{}
	return p.ctx.Err() == nil
}

func (p *Proxy) serve(replica *net.TCPConn) {
	c := &conn{proxy: p, replica: replica}
	defer replica.Close()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	}()
	if !p.add(c, nil) {
		return
	}
	if c.met(actRefuse) {
		c.reset()
		return
	}
	if c.met(actSilence) {
		_, _ = io.Copy(io.Discard, replica)
		return
	}
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	dialled, err := (&net.Dialer{}).DialContext(p.ctx, "tcp", to)
	if err != nil {
		return // Redis is down
	}
	server := dialled.(*net.TCPConn)
	defer server.Close()
	if !p.add(c, server) {
		return
	}
	p.pumps.Go(c.requests)
	c.replies()
}

type conn struct {
	proxy           *Proxy
	replica, server *net.TCPConn
	plain           atomic.Bool // bytes only: something was not understood
	silent          atomic.Bool // nothing gets through any more, and nothing is closed
	mute            atomic.Bool // likewise, for replies

	// Only for requests().
	multi, dirty bool // a transaction is being queued; a command of it was refused here

	mu      sync.Mutex // guards all below
	pending []expected // unanswered, in order
	listens bool       // it has subscribed
}

func (c *conn) reset() {
	_ = c.replica.SetLinger(0)
	_ = c.replica.Close()
}

func (c *conn) lost(silently bool) {
	c.silent.Store(true)
	if !silently {
		c.reset()
	}
}

func (c *conn) notUnderstood() {
	if c.plain.CompareAndSwap(false, true) {
		c.proxy.unclear.Add(1)
	}
}

// bufferSize exceeds the longest line of RESP, a length or an error.
const bufferSize = 64 << 10

// requests carries whole requests: one that is held back is complete when the replica dies. The
// server learns of the connection's end last.
func (c *conn) requests() {
	defer func() { _ = c.server.CloseWrite() }()
	in := bufio.NewReaderSize(c.replica, bufferSize)
	var v value
	var ready []byte // arrived together
	flush := func() bool {
		ok := c.carry(toServer, ready)
		ready = ready[:0]
		return ok
	}
	for !c.plain.Load() {
		err := v.read(in)
		send, ok := v.raw, true
		switch {
		case errors.Is(err, errNotRESP):
			c.notUnderstood()
		case err != nil:
			flush()
			return
		case !c.silent.Load():
			send, ok = c.judge(&v, flush)
		}
		if ready = append(ready, send...); !ok || in.Buffered() == 0 && !flush() {
			return
		}
	}
	if flush() {
		c.pipe(toServer, in)
	}
}

// replies carries answers for as long as Redis keeps the connection: they are counted even if the
// replica is gone.
func (c *conn) replies() {
	in := bufio.NewReaderSize(c.server, bufferSize)
	var v value
	var ready []byte
	for !c.plain.Load() {
		err := v.read(in)
		send := v.raw
		switch {
		case errors.Is(err, errNotRESP):
			c.notUnderstood()
		case err != nil:
			_ = c.carry(toReplica, ready)
			return
		default:
			e := c.answered(&v)
			if e.lost {
				_ = c.carry(toReplica, ready)
				c.lost(e.silently)
			}
			if e.instead != nil {
				send = e.instead
			}
		}
		ready = append(ready, send...)
		if in.Buffered() == 0 {
			if !c.carry(toReplica, ready) {
				return
			}
			ready = ready[:0]
		}
	}
	if c.carry(toReplica, ready) {
		c.pipe(toReplica, in)
	}
}

func (c *conn) pipe(w way, from io.Reader) {
	buffer := make([]byte, bufferSize)
	for {
		n, err := from.Read(buffer)
		if !c.carry(w, buffer[:n]) || err != nil {
			return
		}
	}
}
