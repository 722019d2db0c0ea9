// Package console is a program's HTTP side.
package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/doors"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/janitor"
)

// administered is a [janitor.Janitor].
type administered interface {
	Sweep(ctx context.Context, req janitor.Request) ([]janitor.Report, error)
	Pause(ctx context.Context, p janitor.Pause) error
	Resume(ctx context.Context) error
	Resign(ctx context.Context) error
}

// HTTPConfig requires all fields unless noted otherwise.
type HTTPConfig struct {
	Addr string
	// OperatorAddr serves everything except Routes, which then are at Addr alone. Empty: at Addr.
	OperatorAddr string
	Program      string
	// Client reads the fleet that Layout names, and publishes this replica's description there;
	// nil: there is no fleet.
	Client redis.UniversalClient
	Layout guard.Layout
	Status func() Stated
	// Page is the program's part of the status page, as templates of its status: "program" is its
	// name, "facts" are further lines at the top (dt and dd), "details" precede the janitor's.
	// Empty: none.
	Page string
	// Answers are further GET requests, by path, answered in JSON. May be nil.
	Answers map[string]func() any
	// Routes are the program's own requests, by pattern of [http.ServeMux]. May be nil.
	Routes  map[string]http.Handler
	Janitor administered
	// Swept adds the program's results to a sweep's: it is called before, and the function that it
	// returns after. nil: nothing is added.
	Swept func() func() map[string]any
	// Tokens returns the administrator's current tokens; none: those requests are off.
	Tokens func() []string
	// Hosts are further names of this server; "*": any.
	Hosts []string
	// MaxConns bounds the open connections of each address; default 128, and a quarter of the limit of
	// open files at most.
	MaxConns int
	Metrics  prometheus.Gatherer
	Logger   *slog.Logger
}

// HTTP answers the requests of docs/reference/http.md: the status page, what a program and its
// fleet know as JSON, metrics, health and an administrator's POSTs. Unknown parameters are refused,
// since a mistyped dry_run would be a real sweep.
type HTTP struct {
	cfg      HTTPConfig
	fronts   []front // a second one for OPERATOR_ADDR, if it differs
	operator http.Handler
	template *template.Template
	address  string // for others
	guesses  guesses
	lacks    atomic.Pointer[[]string] // rights
	misses   atomic.Pointer[[]string] // those without which less works

	// nil without a fleet
	fleet     *fleet
	questions *questions
}

const (
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second
	sweepTimeout = 15 * time.Minute // a pass over a large registry
	stopTimeout  = time.Second      // answers under way
	idleTimeout  = 2 * time.Minute
	mostHeader   = 16 << 10 // bytes
	mostConns    = 128
)

// ListenHTTP opens the listeners: an address in use is known at once. Run answers requests.
func ListenHTTP(ctx context.Context, cfg HTTPConfig) (*HTTP, error) {
	s := newHTTP(cfg)
	if err := s.listen(ctx); err != nil {
		return nil, err
	}
	s.warnOpen()
	return s, nil
}

func newHTTP(cfg HTTPConfig) *HTTP {
	if cfg.Tokens == nil {
		cfg.Tokens = func() []string { return nil }
	}
	cfg.MaxConns = min(cmp.Or(cfg.MaxConns, mostConns), max(1, cli.OpenFiles()/4))
	s := &HTTP{cfg: cfg, template: template.Must(pageTemplate.Clone())}
	template.Must(s.template.Parse(cfg.Page))
	warn := slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelWarn)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /page/{file}", s.asset)
	mux.HandleFunc("GET /docs/", s.doc)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz(true))
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, cfg.Status())
	})
	if cfg.Client != nil {
		reader := inspect.New(cfg.Client, cfg.Layout)
		s.fleet = newFleet(reader)
		s.questions = newQuestions(reader, s.fleet)
		mux.HandleFunc("GET /api/v1/devices/{imei}", s.questions.find)
		mux.HandleFunc("GET /api/v1/why", s.questions.why)
		mux.HandleFunc("GET /api/v1/doctor", s.questions.doctor)
		mux.HandleFunc("GET /api/v1/fleet", s.api)
		mux.HandleFunc("GET /page/parts", s.parts)
		mux.HandleFunc("GET /page/why", s.why)
		mux.HandleFunc("GET /page/instance", s.instance)
	}
	for path, ask := range cfg.Answers {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, ask())
		})
	}
	if cfg.OperatorAddr == "" {
		for pattern, handler := range cfg.Routes {
			mux.Handle(pattern, handler)
		}
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(cfg.Metrics, promhttp.HandlerOpts{ErrorLog: warn}))
	for path, a := range s.actions() {
		mux.Handle("POST "+path, s.admin(a))
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", http.MethodPost)
			fail(w, http.StatusMethodNotAllowed, "this changes something: use POST")
		})
	}
	mux.HandleFunc("/", noSuchPage)
	s.operator = s.asked(mux)
	return s
}

func (*HTTP) healthz(w http.ResponseWriter, _ *http.Request) { plain(w, http.StatusOK, "ok") }

// The reason of readyz may name servers.
func (s *HTTP) readyz(withReason bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		switch st := s.cfg.Status().common(); {
		case st.Ready:
			plain(w, http.StatusOK, "ready")
		case withReason:
			plain(w, http.StatusServiceUnavailable, st.NotReady)
		default:
			plain(w, http.StatusServiceUnavailable, "not ready")
		}
	}
}

func noSuchPage(w http.ResponseWriter, r *http.Request) {
	fail(w, http.StatusNotFound, "no such page: "+r.URL.Path)
}

// Run answers requests until ctx ends, then gives those under way a second. No goroutine outlives
// it. It returns nil after ctx ended, or why the listener failed.
func (s *HTTP) Run(ctx context.Context) error {
	s.cfg.Logger.Info("serving HTTP", "addr", s.Addr())
	if len(s.fronts) > 1 {
		s.cfg.Logger.Info("serving HTTP for operators", "addr", s.OperatorAddr())
	}
	if s.fleet != nil {
		asking, stop := context.WithCancel(ctx)
		s.fleet.ctx, s.questions.ctx = asking, asking
		var teller conc.WaitGroup
		var refused error
		teller.Go(func() {
			if refused = s.alone(asking); refused != nil {
				stop()
				return
			}
			s.announce(asking)
		})
		teller.Go(func() { s.count(asking) })
		err := s.serve(asking)
		stop() // if a listener fails
		teller.Wait()
		s.questions.end()
		s.fleet.end()
		return cmp.Or(refused, err)
	}
	return s.serve(ctx)
}

func (s *HTTP) self() self {
	st := s.cfg.Status().common()
	return self{
		Instance: st.Instance, Program: s.cfg.Program, Version: st.Version, Address: s.address,
		Admin: len(s.cfg.Tokens()) > 0,
	}
}

func plain(w http.ResponseWriter, code int, text string) {
	write(w, code, "text/plain; charset=utf-8", []byte(printable.Text(printable.Sentence(text))))
}

func answer(w http.ResponseWriter, code int, v any) {
	body := indented(v)
	if body == nil {
		code, body = http.StatusInternalServerError, []byte(`{"error": "cannot be written as JSON"}`)
	}
	write(w, code, "application/json", body)
}

// indented is nil if v has a NaN or a type unknown to JSON, which is a fault of the program.
func indented(v any) []byte {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil
	}
	return printable.JSON(text)
}

func write(w http.ResponseWriter, code int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // a client may have gone
	_, _ = w.Write([]byte{'\n'})
}

type problem struct {
	Error string `json:"error"`
	// Leader is set on a replica that does not lead; "": nobody leads.
	Leader *string `json:"leader,omitempty"`
}

func fail(w http.ResponseWriter, code int, text string) {
	answer(w, code, problem{Error: printable.Sentence(text)})
}

// badRequest is for the client.
type badRequest string

func (e badRequest) Error() string { return string(e) }

func failWith(w http.ResponseWriter, err error) {
	var bad badRequest
	var elsewhere *janitor.NotLeaderError
	var unknown *janitor.UnknownSweepError
	switch {
	case errors.As(err, &bad), errors.As(err, &unknown):
		fail(w, http.StatusBadRequest, err.Error())
	case errors.As(err, &elsewhere):
		answer(w, http.StatusConflict, problem{Error: printable.Sentence(err.Error()), Leader: &elsewhere.Leader})
	case errors.Is(err, errTooMuch):
		w.Header().Set("Retry-After", "1")
		fail(w, http.StatusTooManyRequests, err.Error())
	default: // Redis, or the time for it
		fail(w, http.StatusServiceUnavailable, err.Error())
	}
}

// connections bounds an HTTP server's open connections: those that are being answered have earned
// their place. So idle and slow clients can neither keep a probe out nor use up the program's
// descriptors.
type connections struct {
	room *doors.Room
	open sync.Map // of net.Conn to *doors.Guest
}

type connectionKey struct{}

func bound(server *http.Server, most int) {
	c := &connections{room: doors.New(doors.Config{Most: most, Rotate: true})}
	next := server.Handler
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, conn)
	}
	server.ConnState = c.changed
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if guest, ok := c.open.Load(r.Context().Value(connectionKey{})); ok {
			guest.(*doors.Guest).Earn()
			defer guest.(*doors.Guest).Lose()
		}
		next.ServeHTTP(w, r)
	})
}

func (c *connections) changed(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		guest := &doors.Guest{End: func() { _ = conn.Close() }}
		c.open.Store(conn, guest)
		if !c.room.Enter(guest, doors.Addr(conn.RemoteAddr().String())) {
			_ = conn.Close()
		}
	case http.StateClosed, http.StateHijacked:
		if guest, ok := c.open.LoadAndDelete(conn); ok {
			guest.(*doors.Guest).Leave()
		}
	}
}

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
