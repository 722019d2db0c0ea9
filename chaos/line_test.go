package chaos

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

// line is the network between one replica and Redis: a proxy that can keep things back, lose, delay, refuse and cut. A
// request that it has taken arrives, also when the replica has given it up or is dead. It is not toxiproxy because that
// knows bytes only: here faults are addressed to commands (line_rules_test.go), and the server's answers are counted by
// somebody who is not the code under test.
type line struct {
	listener net.Listener
	login    string          // of the replica, as in its REDIS_URL
	ctx      context.Context // ends with the line
	end      context.CancelFunc
	pumps    sync.WaitGroup

	rules   atomic.Pointer[[]*rule]  // never changed in place
	scores  atomic.Pointer[[]*score] // likewise; the first is of batches
	unclear atomic.Int64

	mu    sync.Mutex // guards all below, and changes of the above
	to    string
	conns map[*conn]struct{}
}

// newLine opens a line to an address; it is closed with the test at the latest.
func newLine(t *testing.T, to string) *line {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &line{listener: listener, to: to, conns: map[*conn]struct{}{}}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.rules.Store(&[]*rule{})
	l.scores.Store(&[]*score{newScore(isBatch)})
	l.pumps.Go(func() {
		for {
			replica, err := listener.Accept()
			if err != nil {
				return
			}
			l.pumps.Go(func() { l.serve(replica.(*net.TCPConn)) })
		}
	})
	t.Cleanup(l.close)
	return l
}

func (l *line) addr() string { return l.listener.Addr().String() }

func (l *line) hostPort() (host, port string) {
	host, port, _ = net.SplitHostPort(l.addr())
	return host, port
}

// notUnderstood counts the connections that became a plain pipe, to which no rule applies, because of something on them
// that is not known here. A test that relies on rules or counts asserts that there is none.
func (l *line) notUnderstood() int { return int(l.unclear.Load()) }

// close ends the line. What it had kept back is lost. No goroutine is left.
func (l *line) close() {
	l.end()
	_ = l.listener.Close() // says only that it was closed before
	l.each(func(c *conn) {
		_ = c.replica.Close()
		if c.server != nil {
			_ = c.server.Close()
		}
	})
	l.pumps.Wait()
}

// each does something to all connections, and returns how many that were.
func (l *line) each(f func(c *conn)) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		f(c)
	}
	return len(l.conns)
}

// cut closes the replica's connections (FIN) and returns how many. What was under way to Redis still arrives.
func (l *line) cut() int { return l.each(func(c *conn) { _ = c.replica.Close() }) }

// reset is like cut, with an RST.
func (l *line) reset() int { return l.each((*conn).reset) }

// retarget has further connections go to another server, and resets the present ones: a failover.
func (l *line) retarget(to string) int {
	l.mu.Lock()
	l.to = to
	l.mu.Unlock()
	return l.reset()
}

// add puts a connection among the line's, with its server's side; false: the line has ended.
func (l *line) add(c *conn, server *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.server = server
	l.conns[c] = struct{}{}
	return l.ctx.Err() == nil
}

func (l *line) remove(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// serve carries one connection of the replica.
func (l *line) serve(replica *net.TCPConn) {
	c := &conn{line: l, replica: replica}
	defer replica.Close()
	defer l.remove(c)
	if !l.add(c, nil) {
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
	l.mu.Lock()
	to := l.to
	l.mu.Unlock()
	dialled, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", to)
	if err != nil {
		return // Redis is down
	}
	server := dialled.(*net.TCPConn)
	defer server.Close()
	if !l.add(c, server) {
		return
	}
	l.pumps.Go(c.requests)
	c.replies()
}

// conn is one connection of the replica and its twin to the server.
type conn struct {
	line            *line
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
		c.line.unclear.Add(1)
	}
}

// requests carries what the replica sends, by whole requests, so that one that is kept back is all there when the
// replica dies. The server hears of the connection's end last, so that it reads everything.
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

// replies carries what Redis answers, for as long as Redis keeps the connection: somebody has to take it off, and count.
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
