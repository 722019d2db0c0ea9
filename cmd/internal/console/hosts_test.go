package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
)

func TestABrowserCannotBeLedHereByAnotherName(t *testing.T) {
	t.Parallel()
	own, named, any := setup(t, func(c *HTTPConfig) {
		c.Hosts = nil
		c.Routes = map[string]http.Handler{"GET /api/v1/own": http.NotFoundHandler()}
	}), setup(t, func(c *HTTPConfig) { c.Hosts = []string{"Rollcall.example.com"} }),
		setup(t, func(c *HTTPConfig) { c.Hosts = []string{"*"} })
	ask := func(h *bench, script, host string) {
		calltest.Tells(t, func(args ...string) (int, string) {
			return h.do(t, "GET", args[0], "", "", func(r *http.Request) { r.Host = host })
		}, script)
	}
	for _, host := range append(strings.Fields(`127.0.0.1:8080 10.0.0.7 [::1]:8080 [fe80::1] localhost:8080 ingest INGEST:8080
		ingest.default.svc ingest.default.svc.cluster.local:8080 a.internal. box.local`), "") {
		ask(own, `200 /`, host)
	}
	for host := range strings.FieldsSeq(`evil.com evil.com:8080 10.0.0.7.evil.com 127.0.0.1.nip.io evil.com. svc.cluster.local.evil.com
		rollcall.example.com evilinternal.com xlocal.com ..`) {
		ask(own, `
			421 /
			421 /api/v1/status
			421 /metrics
			421 /page/page.js
			421 /nowhere
			200 /healthz
			404 /api/v1/own`, host) // what is for everybody is answered by any name
		ask(any, `200 /`, host)
	}
	ask(named, `200 /`, "rollcall.EXAMPLE.com:443")
	ask(named, `421 /`, "x.rollcall.example.com")
	code, body := own.do(t, "POST", "/api/v1/resume", "", "", func(r *http.Request) { r.Host = "evil.com" })
	require.Equal(t, 421, code)
	require.Contains(t, body, "add it to HTTP_HOSTS")
	require.Zero(t, own.janitor.resumed)
}
