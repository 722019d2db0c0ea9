package chaos_test

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
)

// line is the network between one replica and Redis: a proxy that can keep everything back, lose replies, deliver
// requests late and cut connections. A request that it has taken arrives, also when the replica has given it up.
type line struct {
	listener net.Listener
	to       string
	ctx      context.Context // ends with the line
	end      context.CancelFunc
	pumps    sync.WaitGroup

	mu    sync.Mutex // guards all below
	flows chan struct{}
	mute  bool
	late  time.Duration
	ends  map[*net.TCPConn]struct{} // of the connections, both sides'
}

// newLine opens a line to an address; it is closed with the test at the latest.
func newLine(t *testing.T, to string) *line {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &line{listener: listener, to: to, flows: make(chan struct{}), ends: map[*net.TCPConn]struct{}{}}
	close(l.flows)
	l.ctx, l.end = context.WithCancel(context.Background())
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

// close ends the line. What it had kept back is lost. No goroutine is left.
func (l *line) close() {
	l.end()
	_ = l.listener.Close() // says only that it was closed before
	l.mu.Lock()
	for c := range l.ends {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.pumps.Wait()
}

// cut ends the replica's connections. What was under way to Redis still arrives.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.ends {
		if c.LocalAddr().String() == l.addr() {
			_ = c.Close()
		}
	}
}

// hold keeps back everything, both ways, until release is called. A replica that is held for good is dead to Redis.
func (l *line) hold() (release func()) {
	flows := make(chan struct{})
	l.change(func() { l.flows = flows })
	return sync.OnceFunc(func() { close(flows) })
}

// loseReplies lets no reply through until release is called.
func (l *line) loseReplies() (release func()) {
	l.change(func() { l.mute = true })
	return func() { l.change(func() { l.mute = false }) }
}

// delay lets a third of the requests arrive up to d later, until release is called.
func (l *line) delay(d time.Duration) (release func()) {
	l.change(func() { l.late = d })
	return func() { l.change(func() { l.late = 0 }) }
}

func (l *line) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

func (l *line) state() (flows chan struct{}, mute bool, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.flows, l.mute, l.late
}

// serve carries one connection of the replica.
func (l *line) serve(replica *net.TCPConn) {
	defer replica.Close()
	conn, err := net.Dial("tcp", l.to)
	if err != nil {
		return // Redis is down
	}
	server := conn.(*net.TCPConn)
	defer server.Close()
	l.change(func() { l.ends[replica], l.ends[server] = struct{}{}, struct{}{} })
	defer l.change(func() {
		delete(l.ends, replica)
		delete(l.ends, server)
	})
	if l.ctx.Err() != nil {
		return // closed before it knew of these
	}
	l.pumps.Go(func() { l.requests(replica, server) })
	l.replies(server, replica)
}

// requests carries what the replica sends. The server hears of the connection's end last, so that it reads everything.
func (l *line) requests(replica, server *net.TCPConn) {
	defer func() { _ = server.CloseWrite() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := replica.Read(buffer)
		if err != nil {
			return
		}
		if _, _, late := l.state(); late > 0 && rand.IntN(3) == 0 {
			wait.For(l.ctx, rand.N(late)) // and is not held besides: d is the most
		} else if !l.flowing() {
			return
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// replies carries what Redis answers, for as long as Redis keeps the connection: somebody has to take it off. Behind a
// lost reply nothing more comes through, as TCP has it.
func (l *line) replies(server, replica *net.TCPConn) {
	buffer := make([]byte, 64<<10)
	for lost := false; ; {
		n, err := server.Read(buffer)
		if err != nil || !l.flowing() {
			return
		}
		_, mute, _ := l.state()
		if lost = lost || mute; !lost {
			_, _ = replica.Write(buffer[:n]) // the replica may have given up
		}
	}
}

// flowing waits while the line is held, and reports whether there still is one.
func (l *line) flowing() bool {
	flows, _, _ := l.state()
	select {
	case <-flows:
		return true
	case <-l.ctx.Done():
		return false
	}
}
