package console

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
)

func TestTheOperatorsPathsAreApartWhereOperatorAddrIsSet(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	b := setup(t)
	b.status.Ready, b.status.NotReady = false, "nobody can answer: dial tcp 10.1.2.3:6379"
	cfg := b.cfg
	cfg.Addr, cfg.OperatorAddr, cfg.Logger = "127.0.0.1:0", "127.0.0.1:0", slog.New(slog.NewTextHandler(&log, nil))
	cfg.Metrics = prometheus.NewRegistry()
	cfg.Routes = map[string]http.Handler{"/api/v1/": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})}
	s, stop := listening(t, cfg)
	require.NotEqual(t, s.Addr(), s.OperatorAddr())
	require.Equal(t, s.OperatorAddr(), s.self().Address, "others reach its page there")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(args ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), args[0], args[1], nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", goodToken)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, strings.TrimSpace(string(text))
	}
	for _, path := range []string{"status", "fleet", "why", "sweep", "resign"} { // the program's own answers
		calltest.Tells(t, ask, `
			418 GET $PUBLIC/api/v1/$PATH
			418 POST $PUBLIC/api/v1/$PATH`, "$PUBLIC", "http://"+s.Addr(), "$PATH", path)
	}
	calltest.Tells(t, ask, `
		404 GET $PUBLIC/
		404 GET $PUBLIC/metrics
		404 GET $PUBLIC/docs/
		404 GET $PUBLIC/page/own
		404 GET $PUBLIC/debug/pprof/
		503 GET $PUBLIC/readyz ~ ^not ready$
		200 GET $PUBLIC/healthz
		200 GET $OPERATOR/
		200 GET $OPERATOR/metrics
		200 GET $OPERATOR/api/v1/status
		200 GET $OPERATOR/healthz
		503 GET $OPERATOR/readyz ~ ^$WHY$
		200 POST $OPERATOR/api/v1/resume
		404 GET $OPERATOR/api/v1/own`, // is at the other address alone
		"$PUBLIC", "http://"+s.Addr(), "$OPERATOR", "http://"+s.OperatorAddr(), "$WHY", b.status.NotReady)
	stop()
	require.NotContains(t, log.String(), "level=WARN")

	cfg.OperatorAddr = s.OperatorAddr()
	taken, err := ListenHTTP(t.Context(), cfg)
	require.NoError(t, err, "it is free again")
	defer taken.Close()
	_, err = ListenHTTP(t.Context(), cfg)
	require.ErrorContains(t, err, "console: OPERATOR_ADDR: ")
}

func TestAnOpenAddressWithoutOperatorAddrIsWarnedOf(t *testing.T) {
	t.Parallel()
	for addr, warned := range map[string]bool{":0": true, "0.0.0.0:0": true, "127.0.0.1:0": false, "localhost:0": false} {
		var log bytes.Buffer
		cfg := setup(t).cfg
		cfg.Addr, cfg.Logger = addr, slog.New(slog.NewTextHandler(&log, nil))
		cfg.Routes = map[string]http.Handler{"/api/v1/": http.NotFoundHandler()}
		s, err := ListenHTTP(t.Context(), cfg)
		require.NoError(t, err)
		s.Close()
		require.Equal(t, warned, bytes.Contains(log.Bytes(), []byte("set OPERATOR_ADDR")), addr)
	}
}

// A gateway that goes by Content-Length sees one request, and has not looked at the second.
func TestARequestOfTwoLengthsIsTheLastOfItsConnection(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 2)
	server := newHTTP(setup(t).cfg).server(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "GET /first HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
		"GET /second HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	_, _ = io.ReadAll(conn) // until it is closed
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-done, http.ErrServerClosed)
	close(asked)
	require.Equal(t, "/first", <-asked)
	require.Empty(t, <-asked)
}
