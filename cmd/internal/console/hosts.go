package console

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/printable"
)

// asked refuses requests by names that are not this server's. A page elsewhere can point its own
// name here (DNS rebinding), and a browser then lets it read all answers. It cannot do that with an
// address, or with a name that its owner has not registered. Health, and the program's public
// requests, are answered under any name.
func (s *HTTP) asked(mux *http.ServeMux) http.Handler {
	open := []string{"GET /healthz", "GET /readyz"}
	for pattern := range s.cfg.Routes {
		open = append(open, pattern)
	}
	own, _ := os.Hostname()
	names := append([]string{own}, s.cfg.Hosts...)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOwn(r.Host, names) {
			if _, pattern := mux.Handler(r); !slices.Contains(open, pattern) {
				fail(w, http.StatusMisdirectedRequest, fmt.Sprintf(
					"this server is not asked by the name %q: add it to HTTP_HOSTS, if it is yours", printable.Clip(r.Host)))
				return
			}
		}
		mux.ServeHTTP(w, r)
	})
}

// private are the ends of names that nobody can register.
var private = []string{".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc", ".test", ".invalid"}

func isOwn(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return true
	}
	return slices.ContainsFunc(private, func(end string) bool { return strings.HasSuffix(host, end) }) ||
		strings.HasSuffix(host, ".svc.cluster.local") ||
		slices.ContainsFunc(names, func(name string) bool { return name == "*" || strings.EqualFold(name, host) })
}
