package main

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/programtest"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

const (
	imei = "356307042441013"
	// patience bounds the wait for an event; no event takes that long.
	patience = waittest.Patience
	// asMain turns the test binary into the program, for tests that need a process.
	asMain = "ROLLCALL_TEST_AS_MAIN"
)

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
	}
	redistest.Main(m)
}

const (
	exitOK     = cli.ExitOK
	exitFailed = cli.ExitFailed
	exitUsage  = cli.ExitUsage
)

// run calls the program.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	return ingest().Execute(ctx, args, environ, stdout, stderr)
}

// loaded returns settings, and a command that can log them.
func loaded(args, environ []string) (*settings, *cli.Command, error) {
	s := new(settings)
	c := &cli.Command{Name: "ingest", Settings: s.table(), Prefixes: prefixes, Check: s.check}
	return s, c, c.Load(args, environ)
}

// running is a run of the program within this process.
type running struct {
	*programtest.Program
	devices string
}

// start runs the program on free ports, with additional arguments.
func start(t testing.TB, args ...string) *running {
	t.Helper()
	args = append([]string{"--redis-url=embedded", "--ingest-addr=127.0.0.1:0"}, args...)
	return &running{Program: programtest.Start(t, func(ctx context.Context, args []string, stdout, stderr io.Writer) int {
		return run(ctx, args, nil, stdout, stderr)
	}, args...)}
}

// serving calls start and waits until everything is open.
func serving(t testing.TB, args ...string) *running {
	t.Helper()
	p := start(t, args...)
	p.Serves()
	p.Await(func() bool {
		p.devices = p.Addr("listening for devices")
		return p.devices != ""
	})
	return p
}

func (p *running) state() replicaStatus {
	p.T.Helper()
	return programtest.Status[replicaStatus](p.Program)
}

// connect returns a device at the program.
func (p *running) connect(imei string) *sim.Device {
	p.T.Helper()
	d := sim.New(imei, patience)
	p.T.Cleanup(d.Close)
	accepted, err := d.Connect(p.T.Context(), p.devices)
	require.NoError(p.T, err)
	require.True(p.T, accepted)
	return d
}

// asking is for a child that serves.
func asking(t testing.TB, p *process.Process) *running {
	t.Helper()
	return &running{
		&programtest.Program{T: t, HTTP: p.Said("serving HTTP", "addr")}, p.Said("listening for devices", "addr"),
	}
}

// closed waits until the device's socket is closed.
func closed(t *testing.T, d *sim.Device) {
	t.Helper()
	_, _, err := d.Receive(t.Context())
	require.ErrorIs(t, err, io.EOF)
}
