package console

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
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
	s, err := ListenHTTP(t.Context(), cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, addr, path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+addr+path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", goodToken)
		resp, err := client.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(text)
	}
	require.NotEqual(t, s.Addr(), s.OperatorAddr())
	require.Equal(t, s.OperatorAddr(), s.self().Address, "others reach its page there")
	for _, path := range []string{"/", "/metrics", "/docs/", "/page/own", "/debug/pprof/"} {
		code, _ := ask("GET", s.Addr(), path)
		require.Equal(t, 404, code, path)
	}
	for _, path := range []string{"/api/v1/status", "/api/v1/fleet", "/api/v1/why", "/api/v1/sweep", "/api/v1/resign"} {
		for _, method := range []string{"GET", "POST"} {
			code, _ := ask(method, s.Addr(), path)
			require.Equal(t, http.StatusTeapot, code, "the program's own answers, not the operator's: %s", path)
		}
	}
	code, text := ask("GET", s.Addr(), "/readyz")
	require.Equal(t, []any{503, "not ready\n"}, []any{code, text}, "no address of a server")
	code, _ = ask("GET", s.Addr(), "/healthz")
	require.Equal(t, 200, code)

	for _, path := range []string{"/", "/metrics", "/api/v1/status", "/healthz"} {
		code, _ := ask("GET", s.OperatorAddr(), path)
		require.Equal(t, 200, code, path)
	}
	code, text = ask("GET", s.OperatorAddr(), "/readyz")
	require.Equal(t, []any{503, b.status.NotReady + "\n"}, []any{code, text})
	code, _ = ask("POST", s.OperatorAddr(), "/api/v1/resume")
	require.Equal(t, 200, code)
	code, _ = ask("GET", s.OperatorAddr(), "/api/v1/own")
	require.Equal(t, 404, code, "the program's own requests are at the other address alone")
	stop()
	require.NoError(t, <-ended)
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
