package proxy

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Proxy is the network between one replica and Redis.
type Proxy struct {
	listener net.Listener
	ctx      context.Context // ends with the proxy
	end      context.CancelFunc
	pumps    sync.WaitGroup

	rules   atomic.Pointer[[]*Rule]  // never changed in place
	scores  atomic.Pointer[[]*Score] // likewise
	unclear atomic.Int64

	mu    sync.Mutex // guards all below, and changes of the above
	to    string
	conns map[*conn]struct{}
}

// New opens a proxy to an address; it is closed with the test at the latest.
func New(t *testing.T, to string) *Proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: listener, to: to, conns: map[*conn]struct{}{}}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.rules.Store(&[]*Rule{})
	p.scores.Store(&[]*Score{})
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

// Addr is where the client connects, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// HostPort is Addr in two parts.
func (p *Proxy) HostPort() (host, port string) {
	host, port, _ = net.SplitHostPort(p.Addr())
	return host, port
}

// NotUnderstood counts the connections that became a plain pipe, to which no rule applies, because
// of something on them that is not known here. A test that relies on rules or counts asserts that
// there is none.
func (p *Proxy) NotUnderstood() int { return int(p.unclear.Load()) }

// close ends the proxy. What it had kept back is lost. No goroutine is left.
func (p *Proxy) close() {
	p.end()
	_ = p.listener.Close() // says only that it was closed before
	p.each(func(c *conn) {
		_ = c.replica.Close()
		if c.server != nil {
			_ = c.server.Close()
		}
	})
	p.pumps.Wait()
}

// each does something to all connections, and returns how many that were.
func (p *Proxy) each(f func(c *conn)) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		f(c)
	}
	return len(p.conns)
}

// Connections is how many of the replica's are open.
func (p *Proxy) Connections() int { return p.each(func(*conn) {}) }

// Cut closes the replica's connections (FIN) and returns how many. What was under way to Redis
// still arrives.
func (p *Proxy) Cut() int { return p.each(func(c *conn) { _ = c.replica.Close() }) }

// Reset is like cut, with an RST.
func (p *Proxy) Reset() int { return p.each((*conn).reset) }

// Retarget has further connections go to another server, and resets the present ones: a failover.
func (p *Proxy) Retarget(to string) int {
	p.mu.Lock()
	p.to = to
	p.mu.Unlock()
	return p.Reset()
}

// add puts a connection among the proxy's, with its server's side; false: the proxy has ended.
func (p *Proxy) add(c *conn, server *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.server = server
	p.conns[c] = struct{}{}
	return p.ctx.Err() == nil
}

func (p *Proxy) remove(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// serve carries one connection of the replica.
func (p *Proxy) serve(replica *net.TCPConn) {
	c := &conn{proxy: p, replica: replica}
	defer replica.Close()
	defer p.remove(c)
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

// conn is one connection of the replica and its twin to the server.
type conn struct {
	proxy           *Proxy
	replica, server *net.TCPConn
	plain           atomic.Bool // bytes only: something was not understood
	silent          atomic.Bool // nothing comes through any more, and nothing is closed
	mute            atomic.Bool // likewise, of replies

	// Of requests() alone.
	multi, dirty bool // a transaction is being queued; one of its commands was refused here

	mu      sync.Mutex // guards all below
	pending []expected // requests that are not answered, in order
	head    int        // of pending
	listens bool       // it has subscribed
}

func (c *conn) reset() {
	_ = c.replica.SetLinger(0)
	_ = c.replica.Close()
}

// lost ends a connection, for the replica, as a lost request or reply does.
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

// requests carries what the replica sends, by whole requests, so that one that is kept back is all
// there when the replica dies. The server hears of the connection's end last, so that it reads
// everything.
func (c *conn) requests() {
	defer func() { _ = c.server.CloseWrite() }()
	var (
		scan    scanner
		buffer  = make([]byte, 0, 64<<10)
		scanned int
	)
	for {
		buffer = slices.Grow(buffer, 4<<10)
		n, err := c.replica.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		begun, sent := 0, 0 // where the next request begins; up to where they went to the server
		for scanned < len(buffer) && !c.plain.Load() && !c.silent.Load() {
			n, done := scan.next(buffer[scanned:])
			scanned += n
			if scan.err != nil {
				c.notUnderstood()
			}
			if !done {
				continue
			}
			frame := buffer[begun:scanned]
			flush := func() bool { // what stands before it must not wait for it
				ok := c.carry(toServer, buffer[sent:begun])
				sent = begun
				return ok
			}
			instead, ok := c.judge(frame, flush)
			if !ok {
				return
			}
			if instead != nil {
				if !flush() || !c.carry(toServer, instead) {
					return
				}
				sent = scanned
			}
			begun = scanned
		}
		if err != nil || c.plain.Load() || c.silent.Load() {
			begun = len(buffer)
		}
		if !c.carry(toServer, buffer[sent:begun]) || err != nil {
			return
		}
		buffer = buffer[:copy(buffer, buffer[begun:])]
		scanned = len(buffer)
	}
}

// replies carries what Redis answers, for as long as Redis keeps the connection: somebody has to
// take it off, and count.
func (c *conn) replies() {
	var (
		scan   scanner
		buffer = make([]byte, 64<<10)
		kept   []byte // of a reply that may not go through as it is
		keep   bool
	)
	for {
		n, err := c.server.Read(buffer)
		if err != nil {
			return
		}
		p := buffer[:n]
		sent, scanned := 0, 0
		for scanned < n && !c.plain.Load() {
			if begins := !scan.within; begins && c.touched() {
				if !c.carry(toReplica, p[sent:scanned]) {
					return
				}
				sent, keep = scanned, true
			}
			k, done := scan.next(p[scanned:])
			scanned += k
			if scan.err != nil {
				c.notUnderstood()
			}
			if keep {
				kept = append(kept, p[sent:scanned]...)
				sent = scanned
			}
			if !done {
				continue
			}
			e := c.answered(scan.kind, scan.text)
			if keep {
				switch {
				case e.lost:
					c.lost(e.silently)
				case e.instead != nil:
					kept = append(kept[:0], e.instead...)
				}
				if !c.carry(toReplica, kept) {
					return
				}
				keep, kept = false, kept[:0]
			}
		}
		if c.plain.Load() && len(kept) > 0 {
			if !c.carry(toReplica, kept) {
				return
			}
			kept = nil
		}
		if !keep || c.plain.Load() {
			if !c.carry(toReplica, p[sent:]) {
				return
			}
		}
	}
}
