package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	// patience is for what takes milliseconds, on a machine that does a lot else.
	patience = 2 * time.Minute
	secret   = "0123456789abcdef0123456789abcdef"
	nobody   = "00000000-0000-4000-8000-000000000000"
)

var migrated = pgtest.Template{Prepare: func(ctx context.Context, url string) error {
	src, err := postgres.Open(ctx, url, postgres.Timeout(patience))
	if err != nil {
		return err
	}
	defer src.Close()
	return src.Migrate(ctx)
}}

// rig is an API on a mirror of a real database, in a real Redis.
type rig struct {
	t      *testing.T
	url    string
	prefix string // of the keys
	db     *pgtest.DB
	rdb    *redis.Client // of the test
	mirror *availability.Mirror
	doc    *document
	client *http.Client
	names  []string // of what a script names, each before its id
}

// newRig is one on servers that all tests share.
func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	return rigOn(t, redistest.Shared(t).Options(), redistest.Prefix(t), migrated.Database(t))
}

// rigOn is one on servers of the test's choice.
func rigOn(t *testing.T, options *redis.Options, prefix string, db *pgtest.DB) *rig {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	open := func(o *redis.Options) *redis.Client {
		c := redis.NewClient(o)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	source, err := database.Open(t.Context(), database.Config{URL: db.URL, Logger: log})
	require.NoError(t, err)
	t.Cleanup(source.Close)
	metrics := prometheus.NewRegistry()
	mirror, err := availability.New(availability.Config{
		Source: source, Client: open(options), Control: open(lease.Options(options)),
		Layout: guard.Layout{Prefix: prefix}, Tick: 20 * time.Millisecond, Logger: log, Registerer: metrics,
	})
	require.NoError(t, err)
	tokens, err := token.New(t.Context(),
		token.Config{Secrets: func() []string { return []string{secret} }, Logger: log})
	require.NoError(t, err)
	requests, err := api.New(api.Config{
		Mirror: mirror, Source: source, Tokens: tokens, Logger: log, Registerer: metrics,
	})
	require.NoError(t, err)
	server := httptest.NewServer(requests)
	t.Cleanup(server.Close)

	ctx, cancel := context.WithCancel(context.Background())
	work := pool.New().WithContext(ctx)
	work.Go(mirror.Run)
	work.Go(requests.Run)
	t.Cleanup(func() { cancel(); require.NoError(t, work.Wait()) })
	r := &rig{
		t: t, url: server.URL, prefix: prefix, db: db, rdb: open(options), mirror: mirror,
		doc: readDocument(t, api.Description()), client: server.Client(), names: []string{"{nobody}", nobody},
	}
	select {
	case <-mirror.Ready():
	case <-time.After(patience):
		require.Fail(t, "the mirror does not become whole", mirror.Health().FeedError)
	}
	return r
}

// bearer is a token that is good for an hour.
func bearer(who token.UserType, subject string) string {
	return signed(jwt.SigningMethodHS256, []byte(secret), jwt.MapClaims{
		"sub": subject, "userType": who, "exp": time.Now().Add(time.Hour).Unix(),
	})
}

func signed(method jwt.SigningMethod, key any, claims jwt.MapClaims) string {
	text, err := jwt.NewWithClaims(method, claims).SignedString(key)
	if err != nil {
		panic(err)
	}
	return text
}

var (
	asService  = bearer(token.Service, "dispatch")
	asAdmin    = bearer(token.Admin, "root")
	asCustomer = bearer(token.Customer, "ann")
)

func asMitra(id string) string { return bearer(token.Mitra, id) }

// answer is what a request got.
type answer struct {
	t      *testing.T
	what   string
	code   int
	header http.Header
	body   []byte
}

// ask makes a request, and checks that the answer is one that the document knows. A body that is
// not empty is JSON.
func (r *rig) ask(as, method, path, body string) answer {
	r.t.Helper()
	return r.send(as, method, path, "application/json", strings.NewReader(body))
}

func (r *rig) send(as, method, path, kind string, body io.Reader) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, body)
	require.NoError(r.t, err)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	if as != "" {
		req.Header.Set("Authorization", "Bearer "+as)
	}
	resp, err := r.client.Do(req)
	require.NoError(r.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	r.doc.check(r.t, req, resp, raw)
	return answer{r.t, method + " " + path, resp.StatusCode, resp.Header, raw}
}

// is requires a status, and returns the answer.
func (a answer) is(code int) answer {
	a.t.Helper()
	require.Equal(a.t, code, a.code, "%s: %s", a.what, a.body)
	return a
}

// says requires this JSON.
func (a answer) says(want string) answer {
	a.t.Helper()
	require.JSONEq(a.t, want, string(bytes.TrimSpace(a.body)), a.what)
	return a
}

// problem requires a problem of this name, whose detail has these words.
func (a answer) problem(name string, words ...string) answer {
	a.t.Helper()
	var p struct{ Type, Detail string }
	require.NoError(a.t, json.Unmarshal(a.body, &p), "%s: %s", a.what, a.body)
	_, got, _ := strings.Cut(p.Type, "#")
	require.Equal(a.t, name, got, "%s: %s", a.what, a.body)
	for _, word := range words {
		require.Contains(a.t, p.Detail, word, a.what)
	}
	return a
}

// get returns a member of the JSON object.
func (a answer) get(name string) any {
	a.t.Helper()
	var v map[string]any
	require.NoError(a.t, json.Unmarshal(a.body, &v))
	return v[name]
}

func (a answer) source() string { return a.header.Get("Availability-Source") }

func (r *rig) eventually(f func() bool, what string) {
	r.t.Helper()
	waittest.Until(r.t, 5*time.Millisecond, f, what)
}

func (r *rig) exec(sql string, args ...any) {
	r.t.Helper()
	_, err := r.db.Exec(r.t.Context(), sql, args...)
	require.NoError(r.t, err)
}

// one returns the only value that a query selects.
func one[T any](r *rig, sql string, args ...any) (value T) {
	r.t.Helper()
	require.NoError(r.t, r.db.QueryRow(r.t.Context(), sql, args...).Scan(&value))
	return value
}

// mitra makes one whom a script calls by this name.
func (r *rig) mitra(name string) string {
	r.t.Helper()
	return r.named(name, "INSERT INTO mitras DEFAULT VALUES RETURNING id::text")
}

// onlineMitra is one who went online by the API.
func (r *rig) onlineMitra(name string) string {
	r.t.Helper()
	id := r.mitra(name)
	r.plays("204 " + id + " POST /mitra/online")
	return id
}

func (r *rig) session(name string) string {
	r.t.Helper()
	return r.named(name, "INSERT INTO chat_sessions DEFAULT VALUES RETURNING id::text")
}

func (r *rig) named(name, sql string) string {
	r.t.Helper()
	id := one[string](r, sql)
	r.names = append(r.names, "{"+name+"}", id, "{"+strings.ToUpper(name)+"}", strings.ToUpper(id))
	return id
}

// plays makes requests, one a line: the status that is expected, who asks (a mitra by its id), the
// method, the path below /api/v1, a body, and behind an arrow the JSON of the answer, or the name
// of its problem and words of its detail. {a} is the id of what was named a, {A} is it in capitals.
func (r *rig) plays(script string) (last answer) {
	r.t.Helper()
	script = strings.NewReplacer(r.names...).Replace(script)
	for line := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		request, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		if strings.HasPrefix(request, "#") {
			continue
		}
		words := append(strings.SplitN(request, " ", 5), "")
		as, known := map[string]string{"admin": asAdmin, "service": asService, "customer": asCustomer}[words[1]]
		if !known {
			as = asMitra(words[1])
		}
		code, err := strconv.Atoi(words[0])
		require.NoError(r.t, err, line)
		last = r.ask(as, words[2], "/api/v1"+words[3], words[4]).is(code)
		switch name, detail, _ := strings.Cut(want, ": "); {
		case want == "":
		case json.Valid([]byte(want)):
			last.says(want)
		default:
			last.problem(name, detail)
		}
	}
	return last
}

// state is all that a refused request could have changed.
func (r *rig) state() string {
	r.t.Helper()
	return one[string](r, `SELECT concat(
		(SELECT string_agg(m::text, ';' ORDER BY id) FROM mitras m),
		(SELECT string_agg((mitra_id, is_online)::text, ';' ORDER BY mitra_id) FROM mitra_online_status),
		(SELECT string_agg((id, mitra_id, status)::text, ';' ORDER BY id) FROM chat_sessions),
		(SELECT string_agg(c::text, ';' ORDER BY key) FROM app_config c),
		(SELECT string_agg((mitra_id, version)::text, ';' ORDER BY mitra_id) FROM mitra_availability))`)
}
