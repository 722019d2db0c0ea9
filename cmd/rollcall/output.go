package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/console"
	"github.com/rollcall-redis/rollcall/cmd/internal/inspect"
	"github.com/rollcall-redis/rollcall/internal/printable"
)

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(printable.Writer(w))
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// reply writes v in JSON, or shows it. no: that is the answer.
func (f *fleet) reply(w io.Writer, v any, no bool, show func() error) (err error) {
	if f.json {
		err = writeJSON(w, v)
	} else {
		err = show()
	}
	if err == nil && no {
		err = cli.ErrNo
	}
	return err
}

func writeLines[T any](w io.Writer, all []T) error {
	lines := json.NewEncoder(printable.Writer(w))
	lines.SetEscapeHTML(false)
	for _, v := range all {
		if err := lines.Encode(v); err != nil {
			return err
		}
	}
	return nil
}

// line escapes line breaks.
func line(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintln(w, printable.Text(fmt.Sprintf(format, args...)))
	return err
}

func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return inspect.Ago(now.Sub(at))
}

func rfc3339(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

// moment is a time, or how long ago it was.
type moment struct {
	at  time.Time
	ago time.Duration
}

func (m *moment) parse(v string) (err error) {
	*m = moment{}
	if m.at, err = time.Parse(time.RFC3339, v); err == nil {
		return nil
	}
	if m.ago, err = time.ParseDuration(v); err != nil || m.ago <= 0 {
		return errors.New("how long ago, such as 1h30m, or a time such as 2030-01-02T15:04:05Z")
	}
	return nil
}

func (m moment) given() bool { return m.ago > 0 || !m.at.IsZero() }

// before returns zero if none was given.
func (m moment) before(now time.Time) time.Time {
	if m.ago > 0 {
		return now.Add(-m.ago)
	}
	return m.at
}

func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

const (
	red    = "31"
	yellow = "33"
	green  = "32"
)

// paint needs a terminal whose user has not set NO_COLOR.
func paint(w io.Writer, colour, text string) string {
	if !cli.IsTerminal(w) || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

const replicaTimeout = 5 * time.Second

func statusOf(ctx context.Context, base string) (s console.Status, err error) {
	ctx, cancel := context.WithTimeout(ctx, replicaTimeout)
	defer cancel()
	_, err = request(ctx, http.MethodGet, base+"/api/v1/status", "", &s)
	return s, err
}

type refusal struct {
	Status int
	Text   string `json:"error"`
	Leader string `json:"leader"` // of status 409

	base string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("%s answers %d: %s", r.base, r.Status, r.Text)
}

// request decodes a successful answer into to; of another, the error is a *refusal.
func request(ctx context.Context, method, address, token string, to any) (status int, err error) {
	status, body, err := call(ctx, method, address, token)
	if err != nil {
		return status, err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return status, fmt.Errorf("%s: the answer is not understood: %w", hostOf(address), err)
	}
	return status, nil
}

// hostOf leaves a password out.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Host
}

func call(ctx context.Context, method, address, token string) (status int, body []byte, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return 0, nil, fmt.Errorf("--http: expected a URL such as http://10.0.0.7:8080")
	}
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true,
			DialContext: (&net.Dialer{Timeout: replicaTimeout}).DialContext},
		// A redirect could send the token elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return res.StatusCode, nil, fmt.Errorf("%s: read the answer: %w", u.Host, err)
	}
	if res.StatusCode/100 != 2 {
		no := &refusal{Status: res.StatusCode, base: u.Host}
		if json.Unmarshal(body, no) != nil || no.Text == "" {
			no.Text = "no replica of this project is there"
		}
		return res.StatusCode, nil, no
	}
	return res.StatusCode, body, nil
}
