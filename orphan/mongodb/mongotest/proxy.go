package mongotest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// A Proxy stands between a client and a server, and knows MongoDB's messages. Its faults hit
// answers to finds; what the driver sends of its own accord, to watch the server, goes on as ever.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex // guards all below
	to       string
	hold     chan struct{} // not nil: answers are kept back until it is closed
	cut      int           // answers are cut once so many finds were answered; negative: none
	hits     int
	finds    []bson.Raw
	most     int // bytes in one answer to a find
	rewrites [][2]string
	conns    map[net.Conn]bool // of both sides; nil: closed
}

// NewProxy opens a proxy to an address. It is closed with the test.
func NewProxy(t testing.TB, to string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: listener, to: to, cut: -1, conns: map[net.Conn]bool{}}
	p.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.Release()
		p.closeAll(true)
		p.wg.Wait()
	})
	return p
}

// Addr is where clients connect, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Hits counts the answers that a fault has hit.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

// Finds are the finds that were answered, as commands; getting more of one is another.
func (p *Proxy) Finds() []bson.Raw {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.finds)
}

// Largest is how many bytes the largest answer to a find had.
func (p *Proxy) Largest() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// Hold keeps answers back until Release: they come late, or never.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = make(chan struct{})
}

// Release ends Hold and Cut, and lets go on what was kept back. It may be called at any time.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = -1
	if p.hold != nil {
		close(p.hold)
		p.hold = nil
	}
}

// Cut sends the first half of each answer, and closes the connection, until Release. It spares as
// many answers as it is told.
func (p *Proxy) Cut(spare int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = len(p.finds) + spare
}

// Rewrite replaces bytes of all further messages, in both directions, by as many others.
func (p *Proxy) Rewrite(from, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(from) != len(to) {
		panic("mongotest: a message's length must stay")
	}
	p.rewrites = append(p.rewrites, [2]string{from, to})
}

// Retarget has further connections go to another server, and closes the present ones: what the
// client took for the database is another one, of yesterday maybe.
func (p *Proxy) Retarget(to string) {
	p.mu.Lock()
	p.to = to
	p.mu.Unlock()
	p.closeAll(false)
}

func (p *Proxy) closeAll(forGood bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	if forGood {
		p.conns = nil
	}
}

// add remembers a connection; false: the proxy is closed.
func (p *Proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns == nil {
		_ = c.Close()
		return false
	}
	p.conns[c] = true
	return true
}

func (p *Proxy) remove(c net.Conn) {
	_ = c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// serve carries one connection. A client waits for an answer before it asks again, as this
// package's clients do, so one request and its answer go through at a time.
func (p *Proxy) serve(client net.Conn) {
	defer p.remove(client)
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return // it is down, and so is this
	}
	defer p.remove(server)
	if !p.add(client) || !p.add(server) {
		return
	}
	for {
		request, err := message(client)
		if err != nil {
			return
		}
		request = p.rewritten(request)
		if _, err := server.Write(request); err != nil {
			return
		}
		answer, err := message(server)
		if err != nil {
			return
		}
		answer = p.rewritten(answer)
		if c := command(request); isFind(c) {
			answer, err = p.strike(c, answer)
		}
		if _, writeErr := client.Write(answer); err != nil || writeErr != nil {
			return
		}
	}
}

const (
	headerSize = 16
	longest    = 64 << 20 // more than any server's message
)

var errCut = errors.New("cut")

// strike is where faults happen.
func (p *Proxy) strike(find bson.Raw, answer []byte) ([]byte, error) {
	p.mu.Lock()
	hold, cut := p.hold, p.cut >= 0 && len(p.finds) >= p.cut
	p.finds = append(p.finds, find)
	p.most = max(p.most, len(answer))
	if hold != nil || cut {
		p.hits++
	}
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if cut {
		return answer[:len(answer)/2], errCut
	}
	return answer, nil
}

// command is a message's document. Before it are the header, flags, and the kind of section, in an
// OP_MSG. Of another message it is bytes that are no find.
func command(m []byte) bson.Raw { return m[min(len(m)-4, headerSize+4+1):] }

// isFind tells whether a command is a find, or gets more of one: its name is its first key.
func isFind(c bson.Raw) bool {
	return bytes.HasPrefix(c[4:], []byte("\x02find\x00")) || bytes.HasPrefix(c[4:], []byte("\x12getMore\x00"))
}

func (p *Proxy) rewritten(m []byte) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rewrites {
		m = bytes.ReplaceAll(m, []byte(r[0]), []byte(r[1]))
	}
	return m
}

// message reads one message of MongoDB's protocol: its length comes first.
func message(from io.Reader) ([]byte, error) {
	head := make([]byte, headerSize)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint32(head)
	if length < headerSize || length > longest {
		return nil, errors.New("not a message of MongoDB's")
	}
	whole := append(head, make([]byte, length-headerSize)...)
	_, err := io.ReadFull(from, whole[headerSize:])
	return whole, err
}
