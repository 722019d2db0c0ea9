// Package tracing sends spans by OpenTelemetry (OTLP over HTTP) if the usual variables name an
// endpoint. docs/reference/metrics.md lists the variables.
//
//	traces := tracing.Start(ctx, tracing.Config{Program: "ingest", Instance: id, Logger: log})
//	defer traces.Close()
//	... janitor.Config{StartSpan: traces.StartSpan()}
//
// Without an endpoint Start returns nil, whose methods do nothing. Errors are logged, and stop
// nobody.
//
// # Spans
//
// Attributes begin with rollcall.; the resource has service.name, .version and .instance.id.
//
//   - term, of the leader: from the lease won to the end of all work of the term. epoch, end (why
//     it ended).
//   - open, in term: one try to begin the term in the log and to read the roster. epoch.
//   - pass, linked to its term: one pass of a sweep. sweep, epoch, owner (if one was asked for),
//     outcome, reason, scanned, condemned, evicted, spared.REASON, dry_run.
//   - batch, in pass: its wait for a share of Redis' time, and the script that deletes. sweep,
//     owner (the dead instance), items, batch (its id in the eviction log), verdict, deleted, held.
//   - registration, of ingest: from a device's name to its entry in Redis. outcome, landed, and
//     since the socket was accepted: named_after, answered_after.
//   - the route, of availability, as POST /api/v1/mitra/online: one request, in the caller's span.
//     http.route, http.request.method, http.response.status_code.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/rollcall-redis/rollcall/internal/streak"
)

// closeTime is spent on the last spans.
const closeTime = time.Second

const scope = "github.com/rollcall-redis/rollcall"

// Config requires all fields.
type Config struct {
	Program  string // unless OTEL_SERVICE_NAME is set
	Version  string
	Instance string
	Logger   *slog.Logger
}

// Tracing sends no spans if it is nil.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	log      *slog.Logger
}

// Start reads OpenTelemetry's variables, as its SDK does. It returns nil if they name no endpoint,
// or an unusable one; the log names the faulty variable.
func Start(ctx context.Context, c Config) *Tracing {
	endpoint := endpoint()
	if endpoint == "" {
		return nil
	}
	shown, err := usable(endpoint)
	if err != nil {
		c.Logger.Warn("no traces are sent: OpenTelemetry's variables cannot be used", "error", err)
		return nil
	}
	// The SDK reports settings that it cannot use, such as a sampler, and nothing else: sender keeps
	// failures to send for itself.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		c.Logger.Warn("OpenTelemetry complains", "error", err)
	}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		c.Logger.Warn("no traces are sent: OpenTelemetry's variables cannot be used", "error", err)
		return nil
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(
		attribute.String("service.name", c.Program),
		attribute.String("service.version", c.Version),
		attribute.String("service.instance.id", c.Instance),
	), resource.WithFromEnv()) // the last one wins
	if err != nil { // it contains all that could be parsed
		c.Logger.Warn("OpenTelemetry complains", "error", err)
	}
	send := &sender{
		SpanExporter: exporter,
		sends: streak.New(c.Logger, "traces cannot be sent: spans are dropped until they can",
			"traces are sent again", "endpoint", shown),
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about),
		sdktrace.WithSpanProcessor(loud{sdktrace.NewBatchSpanProcessor(send)}))
	c.Logger.Info("traces are sent", "endpoint", shown)
	return &Tracing{provider: provider,
		tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(c.Version)),
		log:    c.Logger}
}

func endpoint() string {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") ||
		os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return ""
	}
	return first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
}

func first(names ...string) string {
	for _, name := range names {
		if v := os.Getenv(name); v != "" {
			return v
		}
	}
	return ""
}

// usable returns the endpoint without credentials, or an error where the exporter would silently
// use its default.
func usable(endpoint string) (shown string, err error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("OTEL_EXPORTER_OTLP_ENDPOINT: expected a URL such as http://collector:4318")
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for header := range strings.SplitSeq(os.Getenv(name), ",") {
			if strings.TrimSpace(header) != "" && !isHeader(header) {
				return "", fmt.Errorf(
					"%s: expected name=value with commas between them, values escaped as in a URL",
					name,
				)
			}
		}
	}
	switch p := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); p {
	case "", "http/protobuf":
		return u.Scheme + "://" + u.Host, nil
	default:
		return "", fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, got %q", p)
	}
}

// isHeader: the exporter would print a header that it does not understand on stderr, value and all.
func isHeader(text string) bool {
	name, value, found := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	odd := func(c rune) bool {
		return c > '~' || c <= ' ' || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", c)
	}
	_, err := url.PathUnescape(value)
	return found && name != "" && !strings.ContainsFunc(name, odd) && err == nil
}

// Close sends the remaining spans, for a second at most.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.log.Debug("the last spans are not sent", "error", err)
	}
}

// StartSpan returns the hook that parts of a program take.
func (t *Tracing) StartSpan() func(context.Context, string, ...slog.Attr) (context.Context, func(error, ...slog.Attr)) {
	if t == nil {
		return nil
	}
	return t.start
}

func (t *Tracing) start(
	ctx context.Context,
	name string,
	attrs ...slog.Attr,
) (context.Context, func(error, ...slog.Attr)) {
	options := []trace.SpanStartOption{trace.WithAttributes(attributes(attrs)...)}
	if name == "pass" {
		// A term may last for months, and a trace is kept and sampled as a whole. So each pass is a
		// trace of its own, with a link to its term.
		options = append(options, trace.WithNewRoot(), trace.WithLinks(trace.LinkFromContext(ctx)))
	}
	ctx, span := t.tracer.Start(ctx, name, options...)
	return ctx, func(err error, attrs ...slog.Attr) {
		span.SetAttributes(attributes(attrs)...)
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End()
	}
}

// quiet spans are of no interest, and not sent.
const quiet = "quiet"

// attributes converts durations to seconds.
func attributes(attrs []slog.Attr) []attribute.KeyValue {
	all := make([]attribute.KeyValue, len(attrs))
	for i, a := range attrs {
		key := attribute.Key("rollcall." + a.Key)
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindInt64:
			all[i] = key.Int64(v.Int64())
		case slog.KindUint64: // epochs: microseconds, far below 1<<63
			all[i] = key.Int64(int64(v.Uint64()))
		case slog.KindBool:
			all[i] = key.Bool(v.Bool())
		case slog.KindDuration:
			all[i] = key.Float64(v.Duration().Seconds())
		default:
			all[i] = key.String(v.String())
		}
	}
	return all
}

// Handler makes a span of each request, named by its route, in the caller's trace if it has one.
func (t *Tracing) Handler(h http.Handler) http.Handler {
	if t == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := t.tracer.Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		r = r.WithContext(ctx)
		answer := &answer{ResponseWriter: w, code: http.StatusOK}
		h.ServeHTTP(answer, r)
		span.SetName(r.Pattern) // the inner mux has set it
		span.SetAttributes(attribute.String("http.request.method", r.Method),
			attribute.String("http.route", r.Pattern),
			attribute.Int("http.response.status_code", answer.code))
		if answer.code >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	})
}

type answer struct {
	http.ResponseWriter
	code int
}

func (a *answer) WriteHeader(code int) {
	a.code = code
	a.ResponseWriter.WriteHeader(code)
}

// Unwrap is for [http.ResponseController].
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// loud drops quiet spans.
type loud struct{ sdktrace.SpanProcessor }

func (l loud) OnEnd(s sdktrace.ReadOnlySpan) {
	for _, a := range s.Attributes() {
		if a.Key == "rollcall."+quiet && a.Value.AsBool() {
			return
		}
	}
	l.SpanProcessor.OnEnd(s)
}

// sender logs when sending begins to fail, and works again. The SDK would report each failure.
type sender struct {
	sdktrace.SpanExporter
	sends *streak.Streak
}

func (s *sender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	s.sends.Note(s.SpanExporter.ExportSpans(ctx, spans))
	return nil
}
