// Package programtest runs one of our programs within a test's own process.
package programtest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

// Program is one run.
type Program struct {
	T    testing.TB
	Stop context.CancelFunc // as a signal does
	Log  *process.Buffer
	HTTP string // host:port; "": not served yet
	code chan int
}

// Start runs a program until the test ends. Its log becomes part of the test's if that failed.
func Start(
	t testing.TB, run func(ctx context.Context, args []string, stdout, stderr io.Writer) int, args ...string,
) *Program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &Program{T: t, Stop: cancel, Log: &process.Buffer{}, code: make(chan int, 1)}
	args = append([]string{"--http-addr=127.0.0.1:0", "--log-format=json"}, args...)
	go func() { p.code <- run(ctx, args, io.Discard, p.Log) }()
	t.Cleanup(func() {
		cancel()
		p.code <- <-p.code // whether or not the test has waited
		if t.Failed() {
			t.Log(p.Log.String())
		}
	})
	return p
}

// Addr returns the address in the log line with this message.
func (p *Program) Addr(message string) string { return process.Said(p.Log.String(), message, "addr") }

// Serves waits for HTTP.
func (p *Program) Serves() {
	p.T.Helper()
	p.Await(func() bool {
		p.HTTP = p.Addr("serving HTTP")
		return p.HTTP != ""
	}, "HTTP is open")
}

// Ends waits for the exit status.
func (p *Program) Ends() (status int) {
	p.T.Helper()
	select {
	case status = <-p.code:
		p.code <- status
	case <-time.After(waittest.Patience):
		p.T.Fatalf("the program has not ended:\n%s", p.Log)
	}
	return status
}

// Await waits until what returns true.
func (p *Program) Await(what func() bool, name ...any) {
	p.T.Helper()
	waittest.Until(p.T, 20*time.Millisecond, what, name...)
}

// Client keeps no connection open: it would look like a leak.
var Client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Ask takes an optional bearer token and a body in JSON.
func (p *Program) Ask(token, method, path, body string) (resp *http.Response, answer string) {
	p.T.Helper()
	req, err := http.NewRequestWithContext(p.T.Context(), method, "http://"+p.HTTP+path, strings.NewReader(body))
	require.NoError(p.T, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err = Client.Do(req)
	require.NoError(p.T, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(p.T, err)
	return resp, string(raw)
}

// Post asks for an action, without a body.
func (p *Program) Post(path, token string) (code int, body string) {
	p.T.Helper()
	resp, body := p.Ask(token, http.MethodPost, path, "")
	return resp.StatusCode, body
}

// Get asks without a token.
func (p *Program) Get(path string) (code int, body string) {
	p.T.Helper()
	resp, body := p.Ask("", http.MethodGet, path, "")
	return resp.StatusCode, body
}

// Status returns the program's own type.
func Status[S any](p *Program) (s S) {
	p.T.Helper()
	code, body := p.Get("/api/v1/status")
	require.Equal(p.T, http.StatusOK, code)
	require.NoError(p.T, json.Unmarshal([]byte(body), &s))
	return s
}
