package tracing_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/rollcall-redis/rollcall/cmd/internal/calltest"
	"github.com/rollcall-redis/rollcall/cmd/internal/tracing"
	"github.com/rollcall-redis/rollcall/cmd/internal/tracing/tracetest"
	"github.com/rollcall-redis/rollcall/internal/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// with has these variables of OpenTelemetry, and no others. Tests here are not parallel: the SDK
// reads the process' environment.
func with(t *testing.T, pairs ...string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for _, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
}

func config(log *process.Buffer) tracing.Config {
	return tracing.Config{
		Program: "ingest", Version: "v1", Instance: "ingest-1", Logger: slog.New(slog.NewTextHandler(log, nil)),
	}
}

func TestOffItCostsNothing(t *testing.T) {
	with(t)
	var log process.Buffer
	c, h := config(&log), http.Handler(http.NotFoundHandler())
	before := runtime.NumGoroutine()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		traces := tracing.Start(context.Background(), c)
		if traces.StartSpan() != nil || traces != nil {
			panic("it is on")
		}
		h = traces.Handler(h)
		traces.Close()
	}))
	require.Equal(t, before, runtime.NumGoroutine())
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	require.Equal(t, http.StatusNotFound, w.Code)
	require.Empty(t, log.String())
}

// secret may not be told, and not by the logger of OpenTelemetry itself either, which writes to
// stderr: what it would complain of never gets there.
const secret = "do-not-tell-it"

func TestTheUsualVariablesTurnItOnAndOff(t *testing.T) {
	collector := tracetest.Start(t)
	calltest.Tells(t, func(variables ...string) (spans int, warnings string) {
		for i, pair := range variables {
			variables[i] = "OTEL_" + strings.ReplaceAll(pair, "·", " ")
		}
		with(t, variables...)
		var log process.Buffer
		before := len(collector.Spans())
		traces := tracing.Start(t.Context(), config(&log))
		require.NotContains(t, log.String(), secret)
		if start := traces.StartSpan(); start != nil {
			_, end := start(t.Context(), "term")
			end(nil)
		}
		traces.Close()
		for text := range strings.Lines(log.String()) {
			if strings.Contains(text, "level=WARN") {
				warnings += text
			}
		}
		return len(collector.Spans()) - before, warnings
	}, `
		1 $AT ~ \A\z
		1 EXPORTER_OTLP_TRACES_ENDPOINT=$URL/v1/traces EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1 ~ \A\z
		0 $AT SDK_DISABLED=TRUE ~ \A\z
		0 $AT TRACES_EXPORTER=none ~ \A\z
		0 $AT TRACES_SAMPLER=always_off ~ \A\z
		0 $AT EXPORTER_OTLP_PROTOCOL=grpc ~ expected http/protobuf, got \\"grpc\\"
		0 EXPORTER_OTLP_ENDPOINT=collector:4318 ~ expected a URL such as
		0 $AT EXPORTER_OTLP_HEADERS=Authorization:·Bearer·$SECRET ~ expected name=value
		0 $AT EXPORTER_OTLP_TRACES_HEADERS=api-key=%zz$SECRET ~ expected name=value
		0 $AT EXPORTER_OTLP_HEADERS=Bearer·$SECRET== ~ expected name=value
		1 $AT EXPORTER_OTLP_HEADERS=api-key=$SECRET,·x=%20y ~ \A\z
		1 $AT TRACES_SAMPLER=sometimes ~ OpenTelemetry complains`,
		"$AT", "EXPORTER_OTLP_ENDPOINT="+collector.URL, "$URL", collector.URL, "$SECRET", secret)
}

func TestASpanHasItsParentItsAttributesAndItsStatus(t *testing.T) {
	collector := tracetest.Start(t)
	with(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL, "OTEL_RESOURCE_ATTRIBUTES=deployment=blue",
		"OTEL_SERVICE_NAME=trackers")
	var log process.Buffer
	traces := tracing.Start(t.Context(), config(&log))
	start := traces.StartSpan()
	inTerm, endTerm := start(t.Context(), "term", slog.Uint64("epoch", 7))
	inPass, endPass := start(inTerm, "pass", slog.String("sweep", "owners"))
	_, endBatch := start(inPass, "batch", slog.Int("items", 3), slog.Bool("yes", true), slog.Duration("took", time.Second/2))
	endBatch(errors.New("no answer"), slog.Int("deleted", 2))
	endPass(nil)
	_, endQuiet := start(inTerm, "pass")
	endQuiet(nil, slog.Bool("quiet", true))
	endTerm(nil)
	traces.Close()

	require.Len(t, collector.Spans(), 3, "a quiet pass is not sent")
	term, pass, batch := collector.Spans("term")[0], collector.Spans("pass")[0], collector.Spans("batch")[0]
	require.Empty(t, term.Parent)
	require.Empty(t, pass.Parent, "a pass is a trace of its own")
	require.Equal(t, []string{term.ID}, pass.Links)
	require.NotEqual(t, term.Trace, pass.Trace)
	require.Equal(t, pass.ID, batch.Parent)
	require.Equal(t, pass.Trace, batch.Trace)
	require.Equal(t, map[string]any{"rollcall.epoch": int64(7)}, term.Attributes)
	require.Equal(t, map[string]any{"rollcall.items": int64(3), "rollcall.yes": true, "rollcall.took": 0.5,
		"rollcall.deleted": int64(2)}, batch.Attributes)
	require.True(t, batch.Failed)
	require.Equal(t, "no answer", batch.Message)
	require.False(t, pass.Failed)
	for name, want := range map[string]string{
		"service.name": "trackers", "service.version": "v1", "service.instance.id": "ingest-1", "deployment": "blue",
	} {
		require.Equal(t, want, term.Resource[name], name)
	}
}

func TestARequestIsPartOfItsCallersTrace(t *testing.T) {
	collector := tracetest.Start(t)
	with(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector.URL)
	traces := tracing.Start(t.Context(), config(new(process.Buffer)))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sessions/{id}", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		require.NoError(t, http.NewResponseController(w).Flush())
	})
	mux.HandleFunc("GET /fine", func(http.ResponseWriter, *http.Request) {})
	h := traces.Handler(mux)
	req := httptest.NewRequest(http.MethodPost, "/sessions/secret", nil)
	req.Header.Set("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	h.ServeHTTP(httptest.NewRecorder(), req)
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/fine", nil))
	traces.Close()

	require.Len(t, collector.Spans(), 2)
	post, fine := collector.Spans("POST /sessions/{id}")[0], collector.Spans("GET /fine")[0]
	require.Equal(t, "ingest", post.Resource["service.name"])
	require.True(t, post.Server)
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", post.Trace)
	require.Equal(t, "b7ad6b7169203331", post.Parent)
	require.True(t, post.Failed)
	require.Equal(t, int64(503), post.Attributes["http.response.status_code"])
	require.False(t, collector.Contains("secret"), "a span has the route, and not the path")
	require.Empty(t, fine.Parent)
	require.False(t, fine.Failed)
	require.Equal(t, int64(200), fine.Attributes["http.response.status_code"])
}

func TestACollectorThatFailsIsTheLogsMatterOnceAndNobodyElses(t *testing.T) {
	var asked atomic.Int64
	var works atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if !works.Load() {
			w.WriteHeader(http.StatusForbidden) // is not tried again
		}
	}))
	defer server.Close()
	with(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+strings.Replace(server.URL, "http://", "http://user:hunter2@", 1),
		"OTEL_BSP_SCHEDULE_DELAY=1")
	var log process.Buffer
	traces := tracing.Start(t.Context(), config(&log))
	await := func(what func() bool) {
		require.Eventually(t, func() bool {
			_, end := traces.StartSpan()(t.Context(), "term")
			end(nil)
			return what()
		}, 30*time.Second, time.Millisecond)
	}
	await(func() bool { return asked.Load() > 5 })
	require.Equal(t, 1, strings.Count(log.String(), "traces cannot be sent"), log.String())
	works.Store(true)
	await(func() bool { return strings.Contains(log.String(), "traces are sent again") })
	traces.Close()
	require.Equal(t, 1, strings.Count(log.String(), "level=WARN"))
	require.NotContains(t, log.String(), "hunter2")
}

func TestACollectorThatHangsKeepsNoProgramFromItsEnd(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	with(t, "OTEL_EXPORTER_OTLP_ENDPOINT="+server.URL, "OTEL_BSP_SCHEDULE_DELAY=1")
	traces := tracing.Start(t.Context(), config(new(process.Buffer)))
	for range 10_000 { // more than are kept
		_, end := traces.StartSpan()(t.Context(), "term")
		end(nil)
	}
	traces.Close() // returns, though nothing is answered
}
