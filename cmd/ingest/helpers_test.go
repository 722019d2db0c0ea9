package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/device"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/internal/service"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	imei = "356307042441013"
	// patience bounds what a test waits for an event; nothing ever takes so long.
	patience = 2 * time.Minute
	// asMain makes the test binary the program itself, for what only a process can
	// show.
	asMain = "ROLLCALL_TEST_AS_MAIN"
)

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	redistest.Main(m)
}

const (
	exitOK     = service.ExitOK
	exitFailed = service.ExitFailed
	exitUsage  = service.ExitUsage
)

// run is a call of the program.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	return ingest().Execute(ctx, args, environ, stdout, stderr)
}

// loaded are settings, and what would log them.
func loaded(args, environ []string) (*settings, *service.Command, error) {
	s := new(settings)
	c := &service.Command{Name: "ingest", Settings: s.table(), Prefixes: prefixes, Check: s.check}
	return s, c, c.Load(args, environ)
}

// program is a run of the program within this process.
type program struct {
	t       testing.TB
	stop    context.CancelFunc
	log     *process.Buffer
	status  chan int
	http    string
	devices string
}

// addr is the address in the log line with this message; empty if there is none.
func (p *program) addr(message string) string { return process.Said(p.log.String(), message, "addr") }

// start runs the program on free ports, with these further arguments.
func start(t testing.TB, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &program{t: t, stop: cancel, log: &process.Buffer{}, status: make(chan int, 1)}
	args = append([]string{"--redis-url=embedded", "--http-addr=127.0.0.1:0", "--ingest-addr=127.0.0.1:0", "--log-format=json"}, args...)
	go func() { p.status <- run(ctx, args, nil, io.Discard, p.log) }()
	t.Cleanup(func() {
		cancel()
		p.status <- <-p.status // wait, whether or not the test has
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

// serving is start, and waits until everything is open.
func serving(t testing.TB, args ...string) *program {
	t.Helper()
	p := start(t, args...)
	p.await(func() bool {
		p.http, p.devices = p.addr("serving HTTP"), p.addr("listening for devices")
		return p.http != "" && p.devices != ""
	})
	return p
}

// ends waits for the program's end and returns its exit status.
func (p *program) ends() int {
	p.t.Helper()
	select {
	case code := <-p.status:
		p.status <- code
		return code
	case <-time.After(patience):
		p.t.Fatalf("the program has not ended:\n%s", p.log)
		return 0
	}
}

func (p *program) await(what func() bool) {
	p.t.Helper()
	waittest.Until(p.t, 20*time.Millisecond, what)
}

// client keeps no connection open, since those would look like leaks.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p *program) get(path string) (code int, body string) {
	p.t.Helper()
	resp, err := client.Get("http://" + p.http + path)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(raw)
}

func (p *program) post(path, token string) (code int, body string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.http+path, nil)
	require.NoError(p.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	return resp.StatusCode, string(raw)
}

func (p *program) state() replicaStatus {
	p.t.Helper()
	code, body := p.get("/api/v1/status")
	require.Equal(p.t, http.StatusOK, code)
	var st replicaStatus
	require.NoError(p.t, json.Unmarshal([]byte(body), &st))
	return st
}

// connect is a device at the program.
func (p *program) connect(imei string) *device.Device {
	p.t.Helper()
	d := device.New(imei, device.Options{Timeout: patience})
	p.t.Cleanup(d.Close)
	accepted, err := d.Connect(p.t.Context(), p.devices)
	require.NoError(p.t, err)
	require.True(p.t, accepted)
	return d
}

// keys are where the program has its registry.
func (*program) keys() registry.Layout { return registry.Layout{} }
