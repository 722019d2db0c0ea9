// Package tracetest collects OpenTelemetry's spans over OTLP for tests.
package tracetest

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is one that arrived.
type Span struct {
	Name, Trace, ID string
	Parent          string // "": the first of its trace
	Links           []string
	Server          bool
	Failed          bool
	Message         string
	Attributes      map[string]any // string, bool, int64 or float64
	Resource        map[string]any
}

// Collector keeps spans.
type Collector struct {
	URL string

	mu    sync.Mutex
	spans []Span
	raw   bytes.Buffer
}

// Start starts a collector for the test.
func Start(t testing.TB) *Collector {
	c := new(Collector)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			http.Error(w, "expected spans", http.StatusBadRequest)
			return
		}
		if err := c.take(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			t.Error("a request cannot be read:", err)
		}
	}))
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Spans returns those with these names, or all.
func (c *Collector) Spans(names ...string) (all []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if len(names) == 0 || slices.Contains(names, s.Name) {
			all = append(all, s)
		}
	}
	return all
}

// Contains looks through all received data.
func (c *Collector) Contains(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return bytes.Contains(c.raw.Bytes(), []byte(text))
}

func (c *Collector) take(r *http.Request) (err error) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(body); err != nil {
			return err
		}
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	var request collectorpb.ExportTraceServiceRequest
	if err := proto.Unmarshal(raw, &request); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(raw)
	for _, of := range request.ResourceSpans {
		resource := attributes(of.Resource.Attributes)
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans = append(c.spans, span(s, resource))
			}
		}
	}
	return nil
}

func span(s *tracepb.Span, resource map[string]any) Span {
	one := Span{
		Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId),
		Parent: hex.EncodeToString(s.ParentSpanId), Server: s.Kind == tracepb.Span_SPAN_KIND_SERVER,
		Failed: s.Status.GetCode() == tracepb.Status_STATUS_CODE_ERROR, Message: s.Status.GetMessage(),
		Attributes: attributes(s.Attributes), Resource: resource,
	}
	for _, link := range s.Links {
		one.Links = append(one.Links, hex.EncodeToString(link.SpanId))
	}
	return one
}

func attributes(all []*commonpb.KeyValue) map[string]any {
	values := map[string]any{}
	for _, a := range all {
		switch v := a.Value.Value.(type) {
		case *commonpb.AnyValue_StringValue:
			values[a.Key] = v.StringValue
		case *commonpb.AnyValue_BoolValue:
			values[a.Key] = v.BoolValue
		case *commonpb.AnyValue_IntValue:
			values[a.Key] = v.IntValue
		case *commonpb.AnyValue_DoubleValue:
			values[a.Key] = v.DoubleValue
		}
	}
	return values
}
