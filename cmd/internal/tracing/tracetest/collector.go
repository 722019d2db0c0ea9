// Package tracetest collects OpenTelemetry's spans over OTLP for tests.
package tracetest

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
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
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not protobuf: %v", p)
		}
	}()
	spans := read(raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(raw)
	c.spans = append(c.spans, spans...)
	return nil
}

// read knows the field numbers of opentelemetry-proto's ExportTraceServiceRequest.
func read(raw []byte) (spans []Span) {
	for _, of := range message(raw)[1] {
		group := message(of.bytes)
		resource := map[string]any{}
		for _, r := range group[1] {
			resource = attributes(message(r.bytes)[1])
		}
		for _, scope := range group[2] {
			for _, one := range message(scope.bytes)[2] {
				m := message(one.bytes)
				s := Span{
					Name: string(m.one(5).bytes), Trace: hex.EncodeToString(m.one(1).bytes),
					ID: hex.EncodeToString(m.one(2).bytes), Parent: hex.EncodeToString(m.one(4).bytes),
					Server: m.one(6).number == 2, Attributes: attributes(m[9]), Resource: resource,
				}
				for _, link := range m[13] {
					s.Links = append(s.Links, hex.EncodeToString(message(link.bytes).one(2).bytes))
				}
				status := message(m.one(15).bytes)
				s.Failed, s.Message = status.one(3).number == 2, string(status.one(2).bytes)
				spans = append(spans, s)
			}
		}
	}
	return spans
}

func attributes(all []field) map[string]any {
	values := map[string]any{}
	for _, a := range all {
		pair := message(a.bytes)
		name, value := string(pair.one(1).bytes), message(pair.one(2).bytes)
		switch {
		case value[1] != nil:
			values[name] = string(value.one(1).bytes)
		case value[2] != nil:
			values[name] = value.one(2).number == 1
		case value[3] != nil:
			values[name] = int64(value.one(3).number)
		case value[4] != nil:
			values[name] = math.Float64frombits(value.one(4).number)
		}
	}
	return values
}

// field is bytes or a number of a protobuf message.
type field struct {
	bytes  []byte
	number uint64
}

type fields map[uint64][]field

func (f fields) one(number uint64) (last field) {
	if all := f[number]; len(all) > 0 {
		last = all[len(all)-1]
	}
	return last
}

// message panics on anything else.
func message(raw []byte) fields {
	all := fields{}
	uvarint := func() uint64 {
		v, n := binary.Uvarint(raw)
		raw = raw[n:]
		return v
	}
	for len(raw) > 0 {
		tag := uvarint()
		var f field
		switch tag & 7 {
		case 0:
			f.number = uvarint()
		case 1:
			f.number, raw = binary.LittleEndian.Uint64(raw), raw[8:]
		case 2:
			n := uvarint()
			f.bytes, raw = raw[:n], raw[n:]
		case 5:
			f.number, raw = uint64(binary.LittleEndian.Uint32(raw)), raw[4:]
		default:
			panic(fmt.Sprintf("wire type %d", tag&7))
		}
		all[tag>>3] = append(all[tag>>3], f)
	}
	return all
}
