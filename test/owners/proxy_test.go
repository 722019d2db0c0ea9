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

	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// cut ends all connections. Until mend is called there are no others.
func cut(p *proxy.Proxy) (mend func()) {
	refuses := p.Refuse()
	p.Reset()
	return refuses.End
}

// A name leads new connections to a server, as DNS does: those that are open stay where they are.
type name struct {
	net.Listener
	to    atomic.Pointer[string]
	ahead atomic.Int64 // ms, of the server's clock as its answers have it
}

func newName(t *testing.T, to string) *name {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &name{Listener: listener}
	n.lead(to)
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
		running.Wait() // owners have ended
	})
	return n
}

func (n *name) lead(to string) { n.to.Store(&to) }

func (n *name) serve(conn net.Conn) {
	defer conn.Close()
	server, err := net.Dial("tcp", *n.to.Load())
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	})
	_, _ = io.Copy(sink(func(p []byte) {
		if n.ahead.Load() != 0 {
			p = reply.ReplaceAllFunc(p, n.later)
		}
		_, _ = conn.Write(p)
	}), server)
	_ = conn.Close()
	both.Wait()
}

type sink func(p []byte)

func (s sink) Write(p []byte) (int, error) { s(p); return len(p), nil }

// reply is that of an owner's script. It ends with the server's time, in ms.
var reply = regexp.MustCompile(`\*8\r\n\$2\r\nOK\r\n(:-?\d+\r\n){3}\$\d+\r\n\d*\r\n:-?\d+\r\n` +
	`\*\d+\r\n(\$\d+\r\n[^\r]*\r\n)*:\d{13}\r\n`)

func (n *name) later(p []byte) []byte {
	at := len(p) - len("1234567890123\r\n")
	ms, _ := strconv.ParseInt(string(p[at:len(p)-2]), 10, 64)
	return fmt.Appendf(bytes.Clone(p[:at]), "%d\r\n", ms+n.ahead.Load())
}
