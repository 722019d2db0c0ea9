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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A network is what lies between an owner and Redis. Its faults are those of the connections that
// are open then; new ones work, unless it is down.
type network struct {
	net.Listener
	mu    sync.Mutex
	to    string // for new connections
	down  bool   // for new connections
	ahead time.Duration
	links map[*link]bool
}

type link struct {
	owner, server net.Conn
	mu            sync.Mutex
	deaf          bool // the owner gets no more answers, and what it asks still arrives
	held          bool // what it asks waits, also when its connection has ended
	waits         []byte
	listens       bool // it has subscribed to a channel
	ahead         int64
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
	to, down, ahead := n.to, n.down, n.ahead.Milliseconds()
	n.mu.Unlock()
	if down {
		return
	}
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()
	l := &link{owner: conn, server: server, ahead: ahead}
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
	deaf := l.deaf
	l.mu.Unlock()
	if !deaf {
		_, _ = l.owner.Write(l.later(p)) // what the server does goes on if the owner has left
	}
	return nil
}

// serversTime is field 7 of a reply, after the list of entries that name others.
var serversTime = regexp.MustCompile(`(\*0\r\n|[^K]\r\n):(1\d{12})\r\n$`)

// later has the server's clock be ahead.
func (l *link) later(p []byte) []byte {
	at := serversTime.FindSubmatchIndex(p)
	if l.ahead == 0 || at == nil || !bytes.HasPrefix(p, []byte("*8\r\n$2\r\nOK\r\n")) {
		return p
	}
	ms, _ := strconv.ParseInt(string(p[at[4]:at[5]]), 10, 64)
	return fmt.Appendf(bytes.Clone(p[:at[4]]), "%d\r\n", ms+l.ahead)
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

// deafen loses the answers to all that is asked from now on.
func (n *network) deafen() { n.each(func(l *link) { l.deaf = true }) }

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
