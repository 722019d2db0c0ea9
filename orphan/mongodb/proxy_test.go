package mongodb_test

import (
	"bytes"
	"context"
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

// A Proxy forwards messages between client and server. Its faults affect answers to finds, not the
// driver's monitoring.
type Proxy struct {
	listener net.Listener
	to       string
	wg       sync.WaitGroup

	mu       sync.Mutex    // for the fields below
	hold     chan struct{} // answers wait until it is closed; may be nil
	cut      int           // after this many answered finds; negative: never
	hits     int
	finds    []bson.Raw
	most     int // bytes of the largest answer to a find
	rewrites [][2]string
}

// newProxy starts a proxy for an address, until the test ends.
func newProxy(t *testing.T, to string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: listener, to: to, cut: -1}
	t.Cleanup(func() {
		_ = listener.Close()
		p.Release()
		p.wg.Wait()
	})
	p.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			end := context.AfterFunc(t.Context(), func() { _ = client.Close() })
			p.wg.Go(func() {
				defer end()
				p.serve(client)
			})
		}
	})
	return p
}

// Addr is host:port, for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Hits returns how many answers a fault has affected.
func (p *Proxy) Hits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hits
}

// Finds returns the answered finds and getMores.
func (p *Proxy) Finds() []bson.Raw {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.finds)
}

// Largest returns the bytes of the largest answer to a find.
func (p *Proxy) Largest() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}

// Hold withholds answers until Release.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = make(chan struct{})
}

// Release ends Hold and Cut, and forwards withheld answers.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = -1
	if p.hold != nil {
		close(p.hold)
		p.hold = nil
	}
}

// Cut sends half of each answer and closes the connection, until Release, after the next spare
// answers.
func (p *Proxy) Cut(spare int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = len(p.finds) + spare
}

// Rewrite replaces bytes in further messages, both ways, by as many others.
func (p *Proxy) Rewrite(from, to string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(from) != len(to) {
		panic("a message's length must stay")
	}
	p.rewrites = append(p.rewrites, [2]string{from, to})
}

// serve forwards one request and its answer at a time: this package's clients wait for an answer
// before they ask again.
func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return // the server is down, so the proxy is too
	}
	defer server.Close()
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
	longest    = 64 << 20
)

var errCut = errors.New("cut")

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

// command returns the document of an OP_MSG, after header, flags and section kind. For other
// messages it is not a find.
func command(m []byte) bson.Raw { return m[min(len(m)-4, headerSize+4+1):] }

// isFind looks at the first key, which is the command's name.
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
