package console

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestABrowserCannotBeLedHereByAnotherName(t *testing.T) {
	t.Parallel()
	own, named, any := setup(t, func(c *HTTPConfig) {
		c.Hosts = nil
		c.Routes = map[string]http.Handler{"GET /api/v1/own": http.NotFoundHandler()}
	}), setup(t, func(c *HTTPConfig) { c.Hosts = []string{"Rollcall.example.com"} }),
		setup(t, func(c *HTTPConfig) { c.Hosts = []string{"*"} })
	ask := func(h *bench, host, path string) int {
		code, _ := h.do(t, "GET", path, "", "", func(r *http.Request) { r.Host = host })
		return code
	}
	for _, host := range []string{
		"", "127.0.0.1:8080", "10.0.0.7", "[::1]:8080", "[fe80::1]", "localhost:8080", "ingest", "INGEST:8080",
		"ingest.default.svc", "ingest.default.svc.cluster.local:8080", "a.internal.", "box.local",
	} {
		require.Equal(t, 200, ask(own, host, "/"), host)
	}
	for _, host := range []string{
		"evil.com", "evil.com:8080", "10.0.0.7.evil.com", "127.0.0.1.nip.io", "evil.com.", "svc.cluster.local.evil.com",
		"rollcall.example.com", "evilinternal.com", "xlocal.com", "..",
	} {
		for _, path := range []string{"/", "/api/v1/status", "/metrics", "/page/page.js", "/nowhere"} {
			require.Equal(t, 421, ask(own, host, path), "%s %s", host, path)
		}
		require.Equal(t, 200, ask(own, host, "/healthz"), host)
		require.Equal(t, 404, ask(own, host, "/api/v1/own"), "what is for everybody is answered by any name")
		require.Equal(t, 200, ask(any, host, "/"), host)
	}
	require.Equal(t, 200, ask(named, "rollcall.EXAMPLE.com:443", "/"))
	require.Equal(t, 421, ask(named, "x.rollcall.example.com", "/"))
	code, body := own.do(t, "POST", "/api/v1/resume", "", "", func(r *http.Request) { r.Host = "evil.com" })
	require.Equal(t, 421, code)
	require.Contains(t, body, "add it to HTTP_HOSTS")
	require.Zero(t, own.janitor.resumed)
}
