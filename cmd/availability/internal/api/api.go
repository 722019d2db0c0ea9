package api

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
)

// openAPI describes the whole API.
//
//go:embed openapi.yaml
var openAPI []byte

// A Source is the mirror's source, with more for administrators.
type Source interface {
	availability.Source
	// List returns the page that a Listing selects.
	List(ctx context.Context, l postgres.Listing) ([]postgres.Mitra, error)
	// Mitra returns one mitra.
	Mitra(ctx context.Context, id string) (postgres.Mitra, error)
}

// Endings are the default words that end a session, each stored as itself.
var Endings = map[string]string{
	"ended": "ended", "completed": "completed", "cancelled": "cancelled", "expired": "expired",
}

// Config configures an API. Fields are required unless they name a default.
type Config struct {
	Mirror *availability.Mirror
	// Source is the mirror's, for data that only Postgres has, and heartbeats that Redis cannot
	// accept.
	Source Source
	// Endings maps each word that ends a session to the stored status; default [Endings].
	Endings    map[string]string
	Tokens     *token.Verifier
	Logger     *slog.Logger // default slog.Default()
	Registerer prometheus.Registerer
}

// API answers requests.
type API struct {
	mirror  *availability.Mirror
	source  Source
	endings map[string]string
	tokens  *token.Verifier
	mux     *http.ServeMux

	answering *answering
	atSource  *semaphore.Weighted // limits heartbeats at the source
	changes   *changesAsked
	seconds   *prometheus.HistogramVec
	counts    atomic.Pointer[Counts]
}

// New returns an API.
func New(c Config) (*API, error) {
	a := &API{
		mirror: c.Mirror, source: c.Source, endings: c.Endings, tokens: c.Tokens, mux: http.NewServeMux(),
		answering: newAnswering(cmp.Or(c.Logger, slog.Default())),
		atSource:  semaphore.NewWeighted(heartbeatsAtSource),
		changes:   newChangesAsked(c.Source),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "availability_http_request_seconds",
			Help:    "How long requests took, by route and status.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"route", "code"}),
	}
	if a.endings == nil {
		a.endings = Endings
	}
	if c.Registerer != nil {
		for _, collector := range append(a.gauges(), a.seconds) {
			if err := c.Registerer.Register(collector); err != nil {
				return nil, fmt.Errorf("api: metrics: %w", err)
			}
		}
	}
	methods := map[string][]string{}
	for _, r := range a.routes() {
		a.mux.Handle(r.method+" "+r.path, a.handler(r))
		methods[r.path] = append(methods[r.path], r.method)
	}
	for path, of := range methods {
		a.mux.Handle(path, a.handler(route{path: path, do: wrongMethodFor(of)}))
	}
	a.mux.Handle("/", a.handler(route{path: "other", do: func(c *call) error {
		return noSuchPath.because("%s has the paths that there are", openAPIPath)
	}}))
	return a, nil
}

func wrongMethodFor(methods []string) func(c *call) error {
	return func(c *call) error {
		if slices.Contains(methods, http.MethodGet) {
			c.w.Header().Set("Allow", http.MethodGet+", "+http.MethodHead)
		} else {
			c.w.Header().Set("Allow", strings.Join(methods, ", "))
		}
		return wrongMethod.because("expected %s", strings.Join(methods, ", "))
	}
}

// Patterns returns where to mount an API in a mux.
func (*API) Patterns() []string { return []string{"/api/v1/", openAPIPath} }

func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.mux.ServeHTTP(w, r) }

const openAPIPath = "/openapi.yaml"

type route struct {
	method, path string
	who          []token.UserType // nil: everybody, without a token
	do           func(c *call) error
	query        []string // parameters that it knows
	noBody       bool     // of other methods than GET, which never has one
}

func (a *API) routes() []route {
	who := func(types ...token.UserType) []token.UserType { return types }
	return []route{
		{"POST", "/api/v1/mitra/heartbeat", who(token.Mitra), a.heartbeat, nil, true},
		{"POST", "/api/v1/mitra/online", who(token.Mitra), a.online, nil, true},
		{"POST", "/api/v1/mitra/offline", who(token.Mitra), a.offline, nil, true},
		{"GET", "/api/v1/mitra/status", who(token.Mitra), a.status, nil, true},

		{"GET", "/api/v1/availability", token.UserTypes, a.snapshot, nil, true},
		{"GET", "/api/v1/available", who(token.Service), a.available, []string{"limit"}, true},
		{"POST", "/api/v1/sessions/{id}/accept", who(token.Service), a.accept, nil, false},
		{"POST", "/api/v1/sessions/{id}/end", who(token.Service), a.end, nil, false},
		{"POST", "/api/v1/sessions/{id}/extend", who(token.Service), a.extend, nil, false},
		{"POST", "/api/v1/sessions/{id}/reroute", who(token.Service), a.reroute, nil, false},
		{"GET", "/api/v1/mitras/{id}/reachable", who(token.Service, token.Admin), a.reachable, nil, true},

		{"GET", "/api/v1/mitras", who(token.Admin), a.mitras, []string{"online", "sort", "after", "limit"}, true},
		{"PUT", "/api/v1/mitras/{id}", who(token.Admin), a.setActive, nil, false},
		{"GET", "/api/v1/online", who(token.Admin), a.countOnline, nil, true},
		{"GET", "/api/v1/config", who(token.Admin), a.answerSettings, nil, true},
		{"PUT", "/api/v1/config/{name}", who(token.Admin), a.putSetting, nil, false},

		{"GET", openAPIPath, nil, func(c *call) error {
			c.write(http.StatusOK, "application/yaml", openAPI)
			return nil
		}, nil, false},
	}
}

func (a *API) handler(r route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := lasting(req.Context())
		defer cancel()
		c := &call{Request: req.WithContext(ctx), w: w}
		begun := time.Now()
		if err := a.answer(c, r); err != nil {
			a.refuse(c, err)
		} else {
			a.answering.note(nil)
		}
		a.seconds.WithLabelValues(strings.TrimSpace(r.method+" "+r.path), strconv.Itoa(c.code)).
			Observe(time.Since(begun).Seconds())
	})
}

func (a *API) answer(c *call, r route) (err error) {
	if r.who == nil {
		return r.do(c)
	}
	if err := a.admit(c, r); err != nil {
		return err
	}
	if c.params, err = c.query(r.query...); err != nil {
		return err
	}
	if r.noBody { // one with parameters would be ignored
		if err := c.empty(); err != nil {
			return err
		}
	}
	return r.do(c)
}

func (a *API) admit(c *call, r route) (err error) {
	given := c.Header.Values("Authorization")
	if len(given) > 1 { // a gateway in front may have checked another one
		return badToken.because("Authorization is given more than once")
	}
	c.caller, err = a.tokens.Verify(c.Context(), strings.Join(given, ""))
	if err != nil {
		return err
	}
	if !slices.Contains(r.who, c.caller.Type) {
		return wrongUserType.because("expected userType %v, the token has %s", r.who, c.caller.Type)
	}
	return nil
}

// patience bounds a request's wait for a turn at the source.
const patience = time.Second

// lasts is how long a request goes on after its client has gone or its replica stops, so that a
// change gets a known outcome. A stopping server gives its requests more.
const lasts = 800 * time.Millisecond

func lasting(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() { time.AfterFunc(lasts, cancel) })
	return ctx, func() { stop(); cancel() }
}

// canceled means only that the request has ended.
func canceled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
