package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/exact"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/token"
	"github.com/rollcall-redis/rollcall/internal/printable"
	"github.com/rollcall-redis/rollcall/internal/streak"
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

// A kind of problem, as in RFC 9457. Its page has a heading for each.
type kind struct {
	name   string
	status int
	title  string
}

const page = "https://github.com/rollcall-redis/rollcall/blob/main/docs/reference/availability-http.md#"

var (
	noToken       = kind{"no-token", http.StatusUnauthorized, "There is no token"}
	badToken      = kind{"bad-token", http.StatusUnauthorized, "The token is not accepted"}
	wrongUserType = kind{"wrong-user-type", http.StatusForbidden, "The token is for something else"}
	deactivated   = kind{"deactivated", http.StatusForbidden, "The mitra is deactivated"}
	notOnline     = kind{"not-online", http.StatusConflict, "The mitra is not online"}
	taken         = kind{"taken", http.StatusConflict, "The session is taken or over"}
	full          = kind{"full", http.StatusConflict, "The mitra has no room"}
	inactive      = kind{"inactive", http.StatusConflict, "The mitra is not active"}
	notFound      = kind{"not-found", http.StatusNotFound, "There is no such mitra or session"}
	noSuchPath    = kind{"no-such-path", http.StatusNotFound, "There is no such path"}
	wrongMethod   = kind{"wrong-method", http.StatusMethodNotAllowed, "This path takes another method"}
	badRequest    = kind{"bad-request", http.StatusBadRequest, "The request is not understood"}
	badSetting    = kind{"bad-setting", http.StatusBadRequest, "There is no such setting, or no such value"}
	tooLarge      = kind{"too-large", http.StatusRequestEntityTooLarge, "The body is too large"}
	wrongType     = kind{"wrong-content-type", http.StatusUnsupportedMediaType, "The body is not JSON"}
	unavailable   = kind{"unavailable", http.StatusServiceUnavailable, "Nobody can answer now"}
)

var kinds = []kind{
	noToken, badToken, wrongUserType, deactivated, notOnline, taken, full, inactive, notFound, noSuchPath,
	wrongMethod, badRequest, badSetting, tooLarge, wrongType, unavailable,
}

type problemError struct {
	kind
	detail string
}

func (p *problemError) Error() string { return "api: " + p.name + ": " + p.detail }

func (k kind) because(format string, args ...any) error {
	return &problemError{k, fmt.Sprintf(format, args...)}
}

type problemBody struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

var known = []struct {
	is     error
	kind   kind
	detail string
}{
	{availability.ErrNotFound, notFound, "Postgres knows no such mitra or session"},
	{availability.ErrTaken, taken, "another mitra has the session, or it is over"},
	{availability.ErrFull, full, "the mitra has as many sessions as it may have"},
	{availability.ErrInactive, inactive, "an administrator has deactivated the mitra"},
	{availability.ErrStatus, badRequest, "status: the table of sessions does not take it"},
}

// fateUnknown: the change got no answer.
const fateUnknown = "a change may have been made, or not; to ask again does no harm"

// problemOf takes an unknown error to mean that nobody could answer, or that a change's outcome is
// unknown. Its text may contain server names, so it is not shown.
func problemOf(err error) *problemError {
	if p, ok := errors.AsType[*problemError](err); ok {
		return p
	}
	for _, k := range known {
		if errors.Is(err, k.is) {
			return &problemError{k.kind, k.detail}
		}
	}
	switch {
	case errors.Is(err, availability.ErrSetting):
		return &problemError{badSetting, "expected max_customers_per_mitra with a whole number from 0, " +
			"stale_after_seconds or heartbeat_cadence_seconds with one from 1, or require_ping with true or false"}
	case errors.Is(err, token.ErrNone):
		return &problemError{noToken, "expected Authorization: Bearer and a JSON Web Token"}
	case errors.Is(err, token.ErrNoKeys):
		return &problemError{unavailable, "the keys of tokens cannot be had"}
	}
	if refused, ok := errors.AsType[*token.RefusedError](err); ok {
		return &problemError{badToken, refused.Reason}
	}
	return &problemError{unavailable, fateUnknown}
}

// seconds, after a 503
const retryAfter = "1"

func (a *API) refuse(c *call, err error) {
	p := problemOf(err)
	if p.detail == fateUnknown && c.Method == http.MethodGet {
		p = &problemError{unavailable, "nothing that knows the answer can be asked now; ask again"}
	}
	h := c.w.Header()
	switch p.kind {
	case noToken, badToken, wrongUserType:
		h.Set("WWW-Authenticate", challenge(p))
	case unavailable: // even if the request has ended: without an answer it would be logged as a 200
		h.Set("Retry-After", retryAfter)
		if !canceled(c.Context(), err) {
			a.answering.note(err)
		}
	}
	body, err := json.Marshal(problemBody{page + p.name, p.title, p.status, p.detail})
	if err != nil {
		panic(err) // impossible: only strings and a number
	}
	c.write(p.status, "application/problem+json", printable.JSON(body))
}

// challenge follows RFC 6750, section 3: without a token it contains no error.
func challenge(p *problemError) string {
	switch p.kind {
	case noToken:
		return "Bearer"
	case wrongUserType:
		return `Bearer error="insufficient_scope"`
	}
	return fmt.Sprintf(`Bearer error="invalid_token", error_description=%q`, p.detail)
}

// againAfter without a failed request, recovery is logged.
const againAfter = 10 * time.Second

// answering logs when requests stop being answered, and when they are again. While Postgres is
// down, writes fail and reads do not, so a single answer in between does not end it.
type answering struct {
	streak *streak.Streak
	began  time.Time
	failed atomic.Int64 // time since began of the last unanswered request
}

func newAnswering(log *slog.Logger) *answering {
	return &answering{began: time.Now(), streak: streak.New(log,
		"a request is not answered: neither Redis nor Postgres can", "requests are answered again")}
}

func (a *answering) note(err error) {
	since := time.Since(a.began)
	if err != nil {
		a.failed.Store(int64(since))
	} else if !a.streak.Failing() || since-time.Duration(a.failed.Load()) < againAfter {
		return
	}
	a.streak.Note(err)
}
