package console

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// crowded is an HTTP server that may have so many connections.
func crowded(t *testing.T, most int, handler http.Handler) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &http.Server{Handler: handler}
	bound(s, most)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		_ = s.Close()
		require.ErrorIs(t, <-done, http.ErrServerClosed)
	})
	return ln.Addr().String()
}

func TestIdleAndSlowClientsKeepNoOtherOut(t *testing.T) {
	t.Parallel()
	const most = 8
	begun := make(chan struct{}, 100)
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/slow", func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	})
	addr := crowded(t, most, mux)
	dial := func(send string) *bufio.Reader {
		conn, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.WriteString(conn, send)
		require.NoError(t, err)
		return bufio.NewReader(conn)
	}
	healthy := func() {
		t.Helper()
		answer, err := http.ReadResponse(dial("GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.NoError(t, answer.Body.Close())
	}
	for _, kind := range []string{"", "GET /healthz HT", "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"} {
		for range 5 * most {
			dial(kind)
		}
		healthy()
	}
	first := dial("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
	<-begun
	for range most + 1 {
		dial("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
		<-begun
	}
	healthy()
	_, err := first.ReadByte()
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the one that was answered longest made room")
}

func TestASilentFloodFromOneAddressKeepsNoOtherOut(t *testing.T) {
	t.Parallel()
	const most = 16
	addr := crowded(t, most, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	from := func(ip string) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
		conn, err := d.DialContext(t.Context(), "tcp", addr)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		return conn
	}
	slow := from("127.0.0.1")
	first := from("127.0.0.2")
	for range 10 * most {
		from("127.0.0.2")
	}
	_, err := first.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	_, err = io.WriteString(slow, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(slow), nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
}
