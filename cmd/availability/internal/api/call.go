package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/exact"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/internal/printable"
)

const mostBody = 64 << 10

type call struct {
	*http.Request
	w      http.ResponseWriter
	caller token.Caller
	params url.Values
	code   int // of the answer; 0: none yet
}

// write forbids caching.
func (c *call) write(code int, kind string, body []byte) {
	h := c.w.Header()
	if kind != "" {
		h.Set("Content-Type", kind)
	}
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	c.code = code
	c.w.WriteHeader(code)
	_, _ = c.w.Write(body) // ignore a client that has gone
}

func (c *call) answer(v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.write(http.StatusOK, "application/json", printable.JSON(body))
	return nil
}

func (c *call) noContent() error {
	c.write(http.StatusNoContent, "", nil)
	return nil
}

func (c *call) from(origin availability.Origin, age time.Duration) {
	c.w.Header().Set("Availability-Source", string(origin))
	c.w.Header().Set("Age", strconv.Itoa(int(age/time.Second)))
}

func (c *call) id(name string) (string, error) {
	id, ok := token.UUID(c.PathValue(name))
	if !ok {
		return "", badRequest.because("%s in the path: expected a UUID", name)
	}
	return id, nil
}

// body reads one JSON object. It refuses unknown and repeated members.
func (c *call) body(v any) error {
	kind, _, err := mime.ParseMediaType(c.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return wrongType.because("expected Content-Type: application/json")
	}
	raw, err := c.read()
	if err == nil {
		err = exact.Unmarshal(raw, v)
	}
	return badBody(err)
}

func (c *call) empty() error {
	raw, err := c.read()
	if err == nil && len(bytes.TrimSpace(raw)) > 0 {
		err = exact.Unmarshal(raw, &struct{}{})
	}
	return badBody(err)
}

// errBody replaces the connection's error, which contains addresses.
var errBody = errors.New("it did not arrive whole in time")

func (c *call) read() ([]byte, error) {
	raw, err := io.ReadAll(http.MaxBytesReader(c.w, c.Body, mostBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); err != nil && !large {
		err = errBody
	}
	return raw, err
}

func badBody(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge.because("expected at most %d bytes", mostBody)
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return badRequest.because("%s: expected a %s, got a %s", e.Field, e.Type, e.Value)
	}
	return badRequest.because("body: %s", err)
}

// query refuses unknown and repeated parameters.
func (c *call) query(known ...string) (url.Values, error) {
	q, err := url.ParseQuery(c.URL.RawQuery)
	if err != nil {
		return nil, badRequest.because("the query cannot be read")
	}
	for name, values := range q {
		if !slices.Contains(known, name) {
			return nil, badRequest.because("unknown parameter %q; known: %s",
				name, cmp.Or(strings.Join(known, ", "), "none"))
		}
		if len(values) != 1 {
			return nil, badRequest.because("%s: given more than once", name)
		}
	}
	return q, nil
}

func number(q url.Values, name string, least, most, otherwise int) (int, error) {
	if !q.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < least || n > most {
		return 0, badRequest.because("%s: expected a whole number from %d to %d", name, least, most)
	}
	return n, nil
}
