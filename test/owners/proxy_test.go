//go:build owners

package owners

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// A network is what lies between an owner and Redis. Its faults are those of the connections that
// are open then; new ones work, unless it is down.
type network struct {
	net.Listener
	mu    sync.Mutex
	to    string       // for new connections
	down  bool         // for new connections
	ahead atomic.Int64 // ms, of the server's clock as its answers have it
	links map[*link]bool
	loses atomic.Bool // the answer that a record was missing, and all that follow it
	lost  atomic.Bool
}

type link struct {
	owner, server net.Conn
	mu            sync.Mutex
	deaf          bool // the owner gets no more answers, and what it asks still arrives
	held          bool // what it asks waits, also when its connection has ended
	waits         []byte
	listens       bool // it has subscribed to a channel
	*network
}

func newNetwork(t *testing.T, to string) *network {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &network{Listener: listener, to: to, links: map[*link]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { n.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		n.each(func(l *link) { _, _ = l.owner.Close(), l.server.Close() })
		running.Wait()
	})
	return n
}

func (n *network) serve(conn net.Conn) {
	defer conn.Close()
	n.mu.Lock()
	to, down := n.to, n.down
	n.mu.Unlock()
	if down {
		return
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	l := &link{owner: conn, server: server, network: n}
	n.mu.Lock()
	n.links[l] = true
	n.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(sink(l.ask), conn)
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.held {
			_ = server.Close()
		}
	})
	_, _ = io.Copy(sink(l.answer), server)
	_ = conn.Close()
	both.Wait()
}

type sink func(p []byte) error

func (s sink) Write(p []byte) (int, error) { return len(p), s(p) }

func (l *link) ask(p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listens = l.listens || bytes.Contains(bytes.ToLower(p), []byte("\r\nsubscribe\r\n"))
	if l.held {
		l.waits = append(l.waits, p...)
		return nil
	}
	_, err := l.server.Write(p)
	return err
}

func (l *link) answer(p []byte) error {
	l.mu.Lock()
	if l.loses.Load() && bytes.Contains(p, []byte("*8\r\n$2\r\nOK\r\n:0\r\n")) {
		l.deaf = true
		l.lost.Store(true)
	}
	deaf := l.deaf
	l.mu.Unlock()
	if l.ahead.Load() != 0 {
		p = reply.ReplaceAllFunc(p, l.later)
	}
	if !deaf {
		_, _ = l.owner.Write(p) // what the server does goes on if the owner has left
	}
	return nil
}

// reply is that of an owner's script. It ends with the server's time, in ms.
var reply = regexp.MustCompile(`\*8\r\n\$2\r\nOK\r\n(:-?\d+\r\n){3}\$\d+\r\n\d*\r\n:-?\d+\r\n` +
	`\*\d+\r\n(\$\d+\r\n[^\r]*\r\n)*:\d{13}\r\n`)

func (l *link) later(p []byte) []byte {
	at := len(p) - len("1234567890123\r\n")
	ms, _ := strconv.ParseInt(string(p[at:len(p)-2]), 10, 64)
	return fmt.Appendf(bytes.Clone(p[:at]), "%d\r\n", ms+l.ahead.Load())
}

func (n *network) each(f func(l *link)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.links {
		l.mu.Lock()
		f(l)
		l.mu.Unlock()
	}
}

// lead has new connections reach another server, as a name that resolves to another address.
func (n *network) lead(to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.to = to
}

// leaveListeners ends all connections but those that listen.
func (n *network) leaveListeners() {
	n.each(func(l *link) {
		if !l.listens {
			_ = l.owner.Close()
		}
	})
}

// hold delays what is asked until deliver.
func (n *network) hold() { n.each(func(l *link) { l.held = true }) }

// waits reports whether what was asked about an id is delayed.
func (n *network) waits(id string) (does bool) {
	n.each(func(l *link) { does = does || l.held && bytes.Contains(l.waits, []byte("\r\n"+id+"\r\n")) })
	return does
}

func (n *network) deliver() {
	n.each(func(l *link) {
		if l.held {
			_, _ = l.server.Write(l.waits)
			l.waits, l.held, l.deaf = nil, false, true
		}
	})
}

// cut ends all connections. While the network is down there are no others.
func (n *network) cut(down bool) {
	n.mu.Lock()
	n.down = down
	n.mu.Unlock()
	n.each(func(l *link) { _ = l.owner.Close() })
}
