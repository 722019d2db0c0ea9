package console

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// fake is a Janitor that records what it is asked for.
type fake struct {
	err     error
	swept   []janitor.Request
	paused  []janitor.Pause
	resumed int
	resigns int
}

func (f *fake) Sweep(_ context.Context, req janitor.Request) ([]janitor.Report, error) {
	f.swept = append(f.swept, req)
	return []janitor.Report{{Sweep: "registry", Outcome: janitor.Done, DryRun: req.DryRun}}, f.err
}
func (f *fake) Pause(_ context.Context, p janitor.Pause) error {
	f.paused = append(f.paused, p)
	return f.err
}
func (f *fake) Resume(context.Context) error { f.resumed++; return f.err }
func (f *fake) Resign(context.Context) error { f.resigns++; return f.err }

const adminToken = "open-sesame"

type bench struct {
	*HTTP
	janitor *fake
	status  stated
}

// stated is a program's status.
type stated struct {
	Status
	Own int `json:"own"`
}

// ownPage is a program's part of the page.
const ownPage = `{{define "program"}}bench{{end}}{{define "facts"}}<dt>Own</dt><dd>{{count .Own}} of {{.Instance}}</dd>{{end}}
{{define "details"}}<h2>Details</h2>{{end}}`

func setup(t *testing.T, change ...func(*HTTPConfig)) *bench {
	t.Helper()
	b := &bench{janitor: &fake{}}
	now := time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	b.status.Own = 12345
	b.status.Status = Status{
		Instance: "ingest-1", Version: "v1", Time: now, Started: now.Add(-90 * time.Minute), Ready: true,
		HTTPAddr: "127.0.0.1:8080",
		Redis:    connect.RedisStatus{Server: "redis:6379/0", Reachable: true},
		Registry: registry.Status{Instance: "ingest-1", Held: 12340, LastBeat: now.Add(-4 * time.Second)},
		Janitor: janitor.Status{Instance: "ingest-1", Leading: true, Leader: "ingest-1", Epoch: 7,
			Witness: janitor.WitnessStatus{Listening: 3600, LastTick: now}},
	}
	cfg := HTTPConfig{
		Status: func() Stated { return b.status }, Page: ownPage, Janitor: b.janitor,
		Tokens:  func() []string { return []string{adminToken} },
		Hosts:   []string{"example.com"}, // as httptest calls every server
		Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&cfg)
	}
	if b.HTTP = newHTTP(cfg); b.fleet != nil {
		b.fleet.patience = fleetCall
	}
	return b
}

// do sends a request with the token and returns code and body.
func (b *bench) do(t *testing.T, method, target, kind, body string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+adminToken)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	b.operator.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func (b *bench) get(t *testing.T, target string) (int, string) {
	t.Helper()
	return b.do(t, "GET", target, "", "")
}

func (b *bench) post(t *testing.T, target string, change ...func(*http.Request)) (int, string) {
	t.Helper()
	return b.do(t, "POST", target, "", "", change...)
}

// tells makes the requests of a script.
func (b *bench) tells(t *testing.T, script string, words ...string) {
	t.Helper()
	calltest.Tells(t, func(args ...string) (int, string) {
		code, body := b.do(t, args[0], args[1], "", "")
		return code, strings.TrimSpace(text(body))
	}, script, words...)
}

// shows returns a page that is there.
func (b *bench) shows(t *testing.T, target string) string {
	t.Helper()
	code, body := b.get(t, target)
	require.Equal(t, 200, code, target)
	return body
}

func TestARequestIsAnswered(t *testing.T) {
	t.Parallel()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "a_gauge"}, func() float64 { return 3 }))
	b := setup(t, func(c *HTTPConfig) {
		c.Metrics, c.Page = metrics, ""
		c.Answers = map[string]func() any{"/api/v1/stats": func() any { return map[string]int{"removed": 3} }}
	})
	starts := setup(t)
	starts.status.Status = Status{NotReady: "draining"}
	starts.tells(t, `
		200 GET /healthz ~ ^ok$
		503 GET /readyz ~ ^draining$`)
	b.tells(t, `
		200 GET /readyz ~ ^ready$
		200 GET /metrics ~ a_gauge 3
		200 GET /api/v1/stats ~ "removed": 3
		404 POST /api/v1/stats ~ "error"
		404 GET /nope ~ "error": "no such page: /nope"
		405 GET /api/v1/sweep ~ "error"
		200 GET / ~ this replica leads`) // without a part of the program's
	require.Empty(t, b.janitor.swept)
	var got map[string]any
	require.NoError(t, json.Unmarshal([]byte(b.shows(t, "/api/v1/status")), &got))
	require.Equal(t, "ingest-1", got["instance"])
	require.Equal(t, 12345.0, got["own"], "what the program adds")
	require.Equal(t, true, got["janitor"].(map[string]any)["leading"])
}

func TestThePageShowsWhatAnOperatorNeeds(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*Status)
		want   []string
	}{
		{"all is well", func(*Status) {}, []string{
			"this replica leads", "Rollcall bench v1", "12,345 of ingest-1", "<h2>Details</h2>", "answers", "redis:6379/0",
			"last heartbeat 4s ago", "up 1h30m",
		}},
		{"no Redis", func(s *Status) {
			s.Redis.Reachable = false
			s.Registry.Failing = map[string]string{"heartbeat": "connection refused <script>"}
			s.Registry.LastBeat = time.Time{}
		}, []string{"does not answer", "Failing: heartbeat", "connection refused &lt;script&gt;", "last heartbeat never"}},
		{"not ready", func(s *Status) { s.Ready, s.NotReady = false, "draining" }, []string{"not ready: draining"}},
		{"warnings and checks off", func(s *Status) {
			s.Redis.Warnings, s.Janitor.Witness.ChecksOff = []string{"for trying out"}, []string{"refused", "restarted"}
		}, []string{"for trying out", "refused, restarted."}},
		{"a hold, and batches", func(s *Status) {
			s.Janitor.Witness.LastHold, s.Janitor.Witness.Reason, s.Janitor.Unsettled = s.Time.Add(-time.Minute), "gap", 3
		}, []string{"Last hold: gap, 1m ago", "3 batches of unknown fate"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			tt.change(&b.status.Status)
			body := b.shows(t, "/")
			for _, want := range tt.want {
				require.Contains(t, body, want)
			}
			require.NotContains(t, body, "http://")
			require.NotContains(t, body, "https://")
			require.NotContains(t, body, "<script>")
		})
	}
}

func TestAnAdminRequestNeedsTheToken(t *testing.T) {
	t.Parallel()
	paths := []string{"/api/v1/sweep", "/api/v1/pause?who=a&why=b", "/api/v1/resume", "/api/v1/resign"}
	headers := []string{"", "Bearer", "Bearer ", "Bearer open", "Bearer open-sesame2", "Basic open-sesame", "open-sesame"}
	for _, path := range paths {
		for _, h := range headers {
			b := setup(t) // the second wrong one would not be looked at
			code, _ := b.post(t, path, func(r *http.Request) { r.Header.Set("Authorization", h) })
			require.Equal(t, 401, code, "%s %q", path, h)
			require.Equal(t, &fake{}, b.janitor)
		}
	}
	off := setup(t, func(c *HTTPConfig) { c.Tokens = nil })
	for _, path := range paths {
		for _, h := range append(headers, "Bearer "+adminToken) {
			code, body := off.post(t, path, func(r *http.Request) { r.Header.Set("Authorization", h) })
			require.Equal(t, 403, code)
			require.Contains(t, body, "ADMIN_TOKEN is not set")
		}
	}
	require.Equal(t, &fake{}, off.janitor)
}

func TestWhatAnAdministratorAsksForIsDone(t *testing.T) {
	t.Parallel()
	var b *bench
	b = setup(t, func(c *HTTPConfig) {
		c.Swept = func() func() map[string]any {
			before := len(b.janitor.swept)
			return func() map[string]any { return map[string]any{"asked": len(b.janitor.swept) - before} }
		}
	})
	form := url.Values{"who": {"ann"}, "why": {"migration"}, "for": {"1h"}}.Encode()
	for _, tt := range []struct{ target, kind, body, says string }{
		{"sweep?dry_run=true&owner=ingest-2", "", "", `"sweep": "registry"`},
		{"sweep", "application/json", `{"dry_run": true}`, `"asked": 1`},
		{"sweep", "", "", `"asked": 1`},
		{"sweep?sweep=registry", "", "", `"reports"`},
		{"pause", "application/x-www-form-urlencoded", form, `"who": "ann"`},
		{"pause", "application/json; charset=utf-8", `{"who": "bob", "why": "incident", "until": "2999-01-01T00:00:00Z"}`, "2999"},
		{"pause?who=eve&why=later", "", "", `"why": "later"`},
		{"resume", "", "", `"paused": null`},
	} {
		code, body := b.do(t, "POST", "/api/v1/"+tt.target, tt.kind, tt.body)
		require.Equal(t, 200, code, tt.target)
		require.Contains(t, body, tt.says, tt.target)
	}
	require.Equal(t, []janitor.Request{{Owner: "ingest-2", DryRun: true}, {DryRun: true}, {}, {Sweep: "registry"}}, b.janitor.swept)
	require.Len(t, b.janitor.paused, 3)
	require.WithinDuration(t, time.Now().Add(time.Hour), b.janitor.paused[0].Until, time.Minute)
	require.Equal(t, 2999, b.janitor.paused[1].Until.Year())
	require.Equal(t, janitor.Pause{Who: "eve", Why: "later"}, b.janitor.paused[2])
	require.Equal(t, 1, b.janitor.resumed)
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.tells(t, `
		400 POST /api/v1/sweep?dryrun=true ~ unknown parameter \\"dryrun\\"; known: dry_run, owner, sweep
		400 POST /api/v1/sweep?dry_run=maybe ~ dry_run: expected true or false
		400 POST /api/v1/sweep?owner= ~ owner: expected an instance id
		400 POST /api/v1/sweep?sweep= ~ sweep: expected a sweep's name
		400 POST /api/v1/sweep?owner=a&owner=b ~ owner: given more than once
		400 POST /api/v1/pause?why=x ~ expected who and why
		400 POST /api/v1/pause?who=x ~ expected who and why
		400 POST /api/v1/pause?who=x&why=y&for=1h&until=2999-01-01T00:00:00Z ~ got both
		400 POST /api/v1/pause?who=x&why=y&for=0s ~ for: expected a duration
		400 POST /api/v1/pause?who=x&why=y&for=60 ~ for: expected a duration
		400 POST /api/v1/pause?who=x&why=y&until=2001-01-01T00:00:00Z ~ until: expected a time to come
		400 POST /api/v1/resume?why=y ~ unknown parameter
		400 POST /api/v1/resign?to=y ~ unknown parameter`)
	for _, tt := range []struct{ query, kind, body, want string }{
		{"?owner=a", "application/json", `{"owner": "b"}`, "owner: given more than once"},
		{"", "application/json", `{`, "expected one JSON object"},
		{"", "application/json", `{"dry_run": true, "dry_run": false}`, "more than once"},
		{"?dry_run=true%", "application/json", `{}`, "the query cannot be read"},
		{"?dry_run=true;", "application/json", `{}`, "the query cannot be read"},
		{"", "application/json", `{"owner": 5}`, "owner: expected a string"},
		{"", "application/x-www-form-urlencoded", `{"dry_run": true}`, "unknown parameter"},
		{"", "multipart/form-data; boundary=x", "--x\r\n", "the body is neither"},
		{"", "", `{"dry_run": true}`, "the body is neither"},
		{"", "application/json", `null`, "expected one JSON object"},
		{"", "application/json", `{} {"dry_run": true}`, "expected one JSON object"},
		{"", "application/json", `{"owner": "` + strings.Repeat("x", 70_000) + `"}`, "too large"},
	} {
		code, body := b.do(t, "POST", "/api/v1/sweep"+tt.query, tt.kind, tt.body)
		require.Equal(t, 400, code, tt.want)
		require.Contains(t, body, tt.want)
	}
	require.Equal(t, &fake{}, b.janitor)
}

func TestErrorsOfTheJanitorHaveTheirStatus(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.janitor.err = errors.Join(&janitor.NotLeaderError{Leader: "ingest-2"}, errors.New("more"))
	b.tells(t, `
		409 POST /api/v1/sweep ~ "leader": "ingest-2"
		409 POST /api/v1/resign ~ "leader": "ingest-2"`)
	b.janitor.err = &janitor.NotLeaderError{}
	b.tells(t, `409 POST /api/v1/sweep ~ "leader": ""`)
	b.janitor.err = &janitor.UnknownSweepError{Name: "regitsry", Known: []string{"owners", "registry"}}
	b.tells(t, `400 POST /api/v1/sweep?sweep=regitsry ~ there are owners, registry`)
	b.janitor.err = errors.New("redis is away")
	b.tells(t, `503 POST /api/v1/pause?who=a&why=b ~ ^\{ "error": "redis is away" \}$`)
}

func TestAListenerThatFailsEndsTheServing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	broken, err := ListenHTTP(t.Context(), HTTPConfig{Addr: "127.0.0.1:0", Metrics: b.cfg.Metrics, Logger: b.cfg.Logger})
	require.NoError(t, err)
	broken.Close()
	require.ErrorContains(t, broken.Run(t.Context()), "console: ")
}

func TestSecondsAndCountsReadWell(t *testing.T) {
	t.Parallel()
	require.Equal(t, "12ms", seconds(0.012))
	require.Equal(t, "1m5s", seconds(65))
	require.Equal(t, "1,234,567", count(1234567))
	require.Equal(t, "12", count(uint64(12)))
	require.Equal(t, "-5000", count(-5000))
}
