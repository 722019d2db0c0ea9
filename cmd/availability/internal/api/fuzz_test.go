package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

// knowsNobody is a source that answers, and knows no mitra and no session. It keeps what it was
// asked for.
type knowsNobody struct {
	api.Source
	ids []string
	err error // what it answers
}

func (*knowsNobody) Clock() *availability.Clock { return nil }

func (s *knowsNobody) Settings(context.Context) (availability.Settings, error) {
	return availability.Settings{MaxCustomers: 3, StaleAfter: time.Minute, PingInterval: time.Second}, nil
}

func (s *knowsNobody) Accept(_ context.Context, session, mitra string, _ int) (
	availability.Session, []availability.State, error,
) {
	s.ids = append(s.ids, session, mitra)
	return availability.Session{}, nil, s.err
}

func (s *knowsNobody) End(_ context.Context, session, status string) (
	availability.Session, []availability.State, error,
) {
	s.ids = append(s.ids, session)
	return availability.Session{}, nil, s.err
}

func (s *knowsNobody) SetActive(_ context.Context, id string, _ bool) (availability.State, error) {
	s.ids = append(s.ids, id)
	return availability.State{}, s.err
}

func (s *knowsNobody) SetOnline(_ context.Context, id string, _ bool) (availability.State, error) {
	s.ids = append(s.ids, id)
	return availability.State{}, s.err
}

// alone is an API on a source, and on a Redis that nobody asks.
func alone(t testing.TB, source api.Source) *api.API {
	t.Helper()
	return aloneWith(t, source, slog.New(slog.DiscardHandler))
}

func aloneWith(t testing.TB, source api.Source, log *slog.Logger) *api.API {
	t.Helper()
	opt := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true}
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	t.Cleanup(func() { _ = rdb.Close(); _ = ctl.Close() })
	mirror, err := availability.New(availability.Config{
		Source: source, Client: rdb, Control: ctl, Layout: guard.Layout{Prefix: "x:"}, Logger: log,
	})
	require.NoError(t, err)
	tokens, err := token.New(t.Context(), token.Config{Secrets: func() []string { return []string{secret} }})
	require.NoError(t, err)
	a, err := api.New(api.Config{Mirror: mirror, Source: source, Tokens: tokens, Logger: log})
	require.NoError(t, err)
	return a
}

// asked is what an API answers, without a server.
func asked(ctx context.Context, a *api.API, as, method, path, kind, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, method, "http://a/", strings.NewReader(body))
	req.URL.Path = path
	req.Header = http.Header{"Authorization": {"Bearer " + as}, "Content-Type": {kind}}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, req)
	return w
}

const isJSON = "application/json"

// FuzzBody looks for a body that breaks the API, or brings an id that is none to the source.
func FuzzBody(f *testing.F) {
	source := &knowsNobody{err: availability.ErrNotFound}
	a := alone(f, source)
	good := `{"mitra_id": "` + nobody + `"}`
	for _, body := range []string{
		good, good + good, good[:20], `{"mitra_id": ""}`, `{"mitra_id": null}`, `{"MITRA_ID": "` + nobody + `"}`, `[]`, `null`, ``,
		`{"status": "completed"}`, `{"is_active": true}`, `{"is_active": 1}`, "{\"mitra_id\": \"\xff\"}", strings.Repeat("[", 1000),
	} {
		f.Add(body, isJSON, nobody)
	}
	f.Add(good, "application/json; charset=utf-8", "' OR 1=1 --")
	f.Add(good, "text/html", strings.ToUpper(nobody))
	f.Fuzz(func(t *testing.T, body, kind, id string) {
		for _, route := range []string{
			"POST /api/v1/sessions/{id}/accept", "POST /api/v1/sessions/{id}/end", "PUT /api/v1/mitras/{id}",
		} {
			method, path, _ := strings.Cut(route, " ")
			as := asService
			if method == http.MethodPut {
				as = asAdmin
			}
			w := asked(t.Context(), a, as, method, strings.ReplaceAll(path, "{id}", id), kind, body)
			if w.Code >= 300 && w.Code < 400 { // the mux cleans the path
				continue
			}
			require.Contains(t, []int{400, 404, 405, 413, 415}, w.Code, "%s", w.Body)
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			require.True(t, json.Valid(w.Body.Bytes()), "%s", w.Body)
		}
		for _, id := range source.ids {
			lower, ok := token.UUID(id)
			require.True(t, ok, id)
			require.Equal(t, lower, id)
		}
		source.ids = source.ids[:0]
	})
}

// A handler that returned without an answer would answer 200.
func TestARequestThatEndsIsNeverAnsweredAsDone(t *testing.T) {
	t.Parallel()
	a := alone(t, &knowsNobody{err: context.Canceled})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range [][]string{
		{asService, "POST", "/api/v1/sessions/" + nobody + "/accept", `{"mitra_id": "` + nobody + `"}`},
		{asService, "POST", "/api/v1/sessions/" + nobody + "/end", `{"status": "completed"}`},
		{asMitra(nobody), "POST", "/api/v1/mitra/online", ""}, {asMitra(nobody), "POST", "/api/v1/mitra/offline", ""},
		{asAdmin, "PUT", "/api/v1/mitras/" + nobody, `{"is_active": false}`},
	} {
		w := asked(ctx, a, c[0], c[1], c[2], isJSON, c[3])
		require.Equal(t, http.StatusServiceUnavailable, w.Code, c[2])
		require.Equal(t, "1", w.Header().Get("Retry-After"))
	}
}

// While Postgres is away writes fail, and other requests do not.
func TestAnswersInBetweenDoNotFillTheLogOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &knowsNobody{err: errors.New("connection refused")}
		var log bytes.Buffer
		a := aloneWith(t, source, slog.New(slog.NewTextHandler(&log, nil)))
		fails := func() {
			w := asked(t.Context(), a, asMitra(nobody), "POST", "/api/v1/mitra/online", isJSON, "")
			require.Equal(t, 503, w.Code)
		}
		lines := func() [2]int {
			return [2]int{strings.Count(log.String(), "is not answered"), strings.Count(log.String(), "answered again")}
		}
		answered := func() {
			require.Equal(t, 200, asked(t.Context(), a, asAdmin, "GET", "/api/v1/config", isJSON, "").Code)
		}
		answered()
		require.Equal(t, [2]int{0, 0}, lines())
		for range 1000 {
			fails()
			answered()
			time.Sleep(time.Second)
		}
		require.Equal(t, [2]int{1, 0}, lines())
		time.Sleep(10 * time.Second)
		answered()
		require.Equal(t, [2]int{1, 1}, lines())
		fails()
		require.Equal(t, [2]int{2, 1}, lines())
	})
}

func TestABodyThatBreaksOffNamesNoAddress(t *testing.T) {
	t.Parallel()
	a := alone(t, &knowsNobody{err: errors.New("asked")})
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /api/v1/mitra/online HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nContent-Length: 50\r\n\r\n{", asMitra(nobody))
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusBadRequest, resp.StatusCode)
	require.Contains(t, string(body), "did not arrive whole")
}
