package sim

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const imei = "356307042441013"

// gateway is the smallest server for trackers. A test decides its answers.
type gateway struct {
	addr string
	// accept answers a handshake; nil accepts all.
	accept func(imei string) bool
	// answer returns the answer to the n-th frame of a socket, from 0; nil: the number of its
	// records. If it returns no bytes, the socket is closed.
	answer func(n int, s *socketOf) []byte

	mu      sync.Mutex
	frames  [][]byte               // as they came
	answers chan teltonika.Message // of devices, to commands
	hellos  int                    // handshakes
	ends    int                    // of sockets
}

// socketOf is a device's connection and the number of records in its last frame.
type socketOf struct {
	net.Conn
	count int
}

// serve runs a gateway until the test ends.
func serve(t *testing.T, g *gateway) *gateway {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g.addr, g.answers = ln.Addr().String(), make(chan teltonika.Message, 100)
	var handlers sync.WaitGroup
	var conns []net.Conn
	handlers.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			conns = append(conns, c)
			g.mu.Unlock()
			handlers.Go(func() {
				g.handle(c)
				_ = c.Close()
				g.mu.Lock()
				g.ends++
				g.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		g.mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		g.mu.Unlock()
		handlers.Wait()
	})
	return g
}

func (g *gateway) handle(c net.Conn) {
	r := teltonika.NewReader(c, 0)
	imei, err := r.IMEI()
	g.mu.Lock()
	g.hellos++
	g.mu.Unlock()
	if err != nil || g.accept != nil && !g.accept(imei) {
		_, _ = c.Write([]byte{teltonika.Refuse})
		return
	}
	said := []byte{teltonika.Accept}
	for n := 0; ; {
		if _, err := c.Write(said); err != nil {
			return
		}
		f, err := r.Next()
		for ; err == nil && f.Codec.IsCommand(); f, err = r.Next() {
			if messages, err := teltonika.DecodeMessages(f.Body); err == nil {
				for m := range messages.All() {
					m.Text = append([]byte{}, m.Text...)
					g.answers <- m
				}
			}
		}
		if err != nil {
			return
		}
		g.mu.Lock()
		g.frames = append(g.frames, append([]byte{}, f.Raw...))
		g.mu.Unlock()
		said = teltonika.AppendAck(nil, int(f.Count))
		if g.answer != nil {
			said = g.answer(n, &socketOf{c, int(f.Count)})
		}
		if n++; len(said) == 0 {
			return
		}
	}
}

// raw returns the received frames, in order.
func (g *gateway) raw() [][]byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([][]byte{}, g.frames...)
}

func (g *gateway) seen() (hellos, ends int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hellos, g.ends
}

func await(t *testing.T, what func() bool) {
	t.Helper()
	require.Eventually(t, what, 20*time.Second, time.Millisecond)
}

func commandFrame(t *testing.T, codec teltonika.Codec, m teltonika.Message) []byte {
	t.Helper()
	frame := teltonika.AppendMessages(nil, codec, m)
	return frame
}
