package device

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the smallest server for a device. It sends each observation to events, as a string.
type server struct {
	addr   string
	events chan string
	refuse map[string]bool // IMEIs to refuse
	mute   bool            // frames are not answered
	frames chan []teltonika.Record
}

// setup starts a server that ends with the test.
func setup(t *testing.T, adjust ...func(*server)) *server {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{addr: l.Addr().String(), events: make(chan string, 100), frames: make(chan []teltonika.Record, 100)}
	for _, f := range adjust {
		f(s)
	}
	var mu sync.Mutex
	var conns []net.Conn
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			handlers.Go(func() { s.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		handlers.Wait()
	})
	return s
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	r := teltonika.NewReader(c, 0)
	imei, err := r.IMEI()
	if err != nil || s.refuse[imei] {
		_, _ = c.Write([]byte{teltonika.Refuse})
		return
	}
	s.events <- "accepted " + imei
	if _, err := c.Write([]byte{teltonika.Accept}); err != nil {
		return
	}
	for {
		started, err := r.Await()
		switch {
		case errors.Is(err, io.EOF):
			s.events <- "closed"
			return
		case err != nil:
			return
		case !started:
			s.events <- "keep-alive"
			continue
		}
		f, err := r.Next()
		if err != nil {
			return // as a server must: no answer, close
		}
		var b teltonika.Batch
		if err := b.Decode(f.Body); err != nil {
			return
		}
		if s.mute {
			s.events <- "unanswered"
			continue
		}
		s.frames <- copyOf(b.Records)
		if _, err := c.Write(teltonika.AppendAck(nil, len(b.Records))); err != nil {
			return
		}
	}
}

// copyOf takes records out of the reader's buffer.
func copyOf(records []teltonika.Record) []teltonika.Record {
	body, err := teltonika.AppendBody(nil, teltonika.Codec8E, records...)
	if err != nil {
		panic(err)
	}
	var b teltonika.Batch
	if err := b.Decode(body); err != nil {
		panic(err)
	}
	return b.Records
}

// requireEvent waits for the server's next event.
func (s *server) requireEvent(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-s.events:
		require.Equal(t, want, got)
	case <-time.After(10 * time.Second):
		t.Fatalf("waited for %q in vain", want)
	}
}
