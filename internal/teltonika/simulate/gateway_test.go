package simulate

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// patience bounds the wait for an event; no event takes that long.
const patience = 20 * time.Second

// gateway is the smallest server for trackers. A test decides its answers.
type gateway struct {
	addr string
	// accept answers a handshake; nil accepts all.
	accept func(imei string) bool
	// answer returns the answer to the n-th frame of a socket, from 0; nil: the number of its
	// records. If it returns no bytes, the socket is closed.
	answer func(n int, s *socket) []byte

	mu      sync.Mutex
	frames  [][]byte               // as they came
	answers chan teltonika.Message // of devices, to commands
	hellos  int
	ends    int // of sockets
}

// socket is a device's connection and its last frame.
type socket struct {
	net.Conn
	imei  string
	count int
}

// serve runs a gateway until the test ends.
func serve(t *testing.T, g *gateway) *gateway {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	g.addr, g.answers = ln.Addr().String(), make(chan teltonika.Message, 100)
	var handlers sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	handlers.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			handlers.Go(func() { g.handle(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		handlers.Wait()
	})
	return g
}

func (g *gateway) handle(c net.Conn) {
	defer func() {
		_ = c.Close()
		g.mu.Lock()
		g.ends++
		g.mu.Unlock()
	}()
	r := teltonika.NewReader(c, 0)
	imei, err := r.IMEI()
	if err != nil {
		return
	}
	g.mu.Lock()
	g.hellos++
	g.mu.Unlock()
	if g.accept != nil && !g.accept(imei) {
		_, _ = c.Write([]byte{teltonika.Refuse})
		return
	}
	if _, err := c.Write([]byte{teltonika.Accept}); err != nil {
		return
	}
	s := &socket{Conn: c, imei: imei}
	for n := 0; ; {
		f, err := r.Next()
		if err != nil {
			return
		}
		if f.Codec.IsCommand() {
			if messages, err := teltonika.DecodeMessages(f.Body); err == nil {
				for m := range messages.All() {
					m.Text = append([]byte{}, m.Text...)
					g.answers <- m
				}
			}
			continue
		}
		g.mu.Lock()
		g.frames = append(g.frames, append([]byte{}, f.Raw...))
		g.mu.Unlock()
		s.count = int(f.Count)
		said := teltonika.AppendAck(nil, s.count)
		if g.answer != nil {
			said = g.answer(n, s)
		}
		if n++; len(said) == 0 {
			return
		}
		if _, err := c.Write(said); err != nil {
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

// fleetOn runs a fleet until the test ends, or until stop is called.
func fleetOn(t *testing.T, cfg Config) (f *Fleet, stop func()) {
	t.Helper()
	if cfg.Interval == 0 {
		cfg.Interval = 5 * time.Millisecond
	}
	if cfg.LadderUnit == 0 {
		cfg.LadderUnit = time.Millisecond
	}
	f, err := New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	t.Cleanup(stop)
	return f, stop
}

func await(t *testing.T, what func() bool) {
	t.Helper()
	require.Eventually(t, what, patience, time.Millisecond)
}

// greeted returns the number of handshakes.
func (g *gateway) greeted() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hellos
}

// ended returns the number of sockets that have ended.
func (g *gateway) ended() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ends
}
