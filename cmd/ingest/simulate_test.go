package main

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// fleet is a running simulation that keeps books.
type fleet struct {
	*sim.Simulation
	stop  func()
	mu    sync.Mutex
	acked map[[2]string]bool // IMEI and time
}

func simulating(t *testing.T, cfg sim.Config) *fleet {
	t.Helper()
	f := &fleet{acked: make(map[[2]string]bool)}
	cfg.Acknowledged = func(imei string, records []teltonika.Record) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, r := range records {
			f.acked[[2]string{imei, strconv.FormatUint(r.Timestamp, 10)}] = true
		}
	}
	var err error
	f.Simulation, err = sim.Simulate(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); f.Run(ctx) }()
	f.stop = func() { cancel(); <-ended }
	t.Cleanup(f.stop)
	return f
}

// requireStored returns the number of records acknowledged so far.
func (f *fleet) requireStored(t *testing.T, rdb redis.UniversalClient) int {
	t.Helper()
	f.mu.Lock() // a copy: what is acknowledged from now on may not be read
	left := maps.Clone(f.acked)
	f.mu.Unlock()
	acked := len(left)
	stored, err := rdb.XRange(t.Context(), gateway.Stream, "-", "+").Result()
	require.NoError(t, err)
	for _, m := range stored {
		delete(left, [2]string{m.Values["imei"].(string), m.Values["ts"].(string)})
	}
	require.Empty(t, left, "of %d acknowledged records", acked)
	return acked
}

func (f *fleet) await(t *testing.T, what func(sim.Counts) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return what(f.Counts()) }, patience, 5*time.Millisecond)
}

func TestEveryRecordAcknowledgedToAFleetIsInTheStream(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := serving(t, on(server)...)
	f := simulating(t, sim.Config{
		Devices: 50, Targets: []string{p.devices}, Interval: 500 * time.Millisecond, Records: 3, Codec: teltonika.Codec8E, Backlog: 45,
		HalfOpen: 0.1, LadderUnit: 10 * time.Millisecond, Seed: 1,
	})
	f.await(t, func(c sim.Counts) bool {
		return c.Backlog == 0 && c.Acked > 350 && c.HalfOpen > 10 && c.Resent > 3 && c.Connected > 45
	})
	f.stop()
	require.Greater(t, f.requireStored(t, server.Client()), 50*45+100)
}

func TestSimulateShowsAFleetAndEndsWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := serving(t, on(server)...)
	var stdout, stderr bytes.Buffer
	args := strings.Fields("simulate --devices 7 --interval 50ms --codec 8e --backlog 5 --seed 42 --duration 4s --targets " + p.devices)
	require.Equal(t, exitOK, run(t.Context(), args, nil, &stdout, &stderr), stderr.String())
	require.Empty(t, stderr.String())
	require.Contains(t, stdout.String(), "simulating 7 trackers, a frame of codec 8E every 50ms, at "+p.devices+"; seed 42\n")
	require.Regexp(t, `connected +7 of 7\n`, stdout.String())
	require.Regexp(t, `p50 [0-9.]+[mµ]?s, p99`, stdout.String())

	interrupted, interrupt := context.WithCancel(t.Context())
	done := make(chan int, 1)
	go func() {
		done <- run(interrupted, []string{"simulate", "--targets=" + p.devices, "--interval=10ms"}, nil, io.Discard, io.Discard)
	}()
	before := server.Client().XLen(t.Context(), gateway.Stream).Val()
	// something was accepted
	p.Await(func() bool { return server.Client().XLen(t.Context(), gateway.Stream).Val() > before })
	interrupt()
	require.Equal(t, exitOK, <-done)
}

func TestSimulateSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	simulated := func(line string) int {
		stdout.Reset()
		stderr.Reset()
		return run(t.Context(), strings.Fields("simulate "+line), nil, &stdout, &stderr)
	}
	for line, want := range map[string]string{
		"--devices 0": "devices", "--devices x": "devices", "--nope": "nope", "stray": "flags only", "--targets nowhere": "nowhere",
		"--codec 12": "8, 8e or 16", "--interval 0s": "--interval", "--records 0": "--records", "--half-open 2": "half-open",
		"--duration -1s": "--duration", "--ladder-unit 0s": "--ladder-unit",
		"--interval -1s": "--interval", "--records 11": "--records", "--backlog 192001": "--backlog", "--half-open 1.1": "--half-open",
		"--first-imei 99999999999999": "--first-imei", "--timeout 0s": "--timeout", "--devices 1000001": "--devices",
		"--ladder-unit -1s --targets :5027": "2 wrong", "--targets 127.0.0.1:x": "host:port",
	} {
		require.Equal(t, exitUsage, simulated(line), line)
		require.Contains(t, stderr.String(), want)
		require.Contains(t, stderr.String(), "-h shows every flag")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	require.Equal(t, exitFailed, simulated("--devices 2 --interval 1ms --duration 200ms --targets "+ln.Addr().String()))
	require.Contains(t, stderr.String(), "nothing could connect: device 35630704")

	require.Equal(t, exitOK, simulated("-h"))
	for _, want := range []string{"--devices", "--ladder-unit", "--half-open", "(default: drawn)", "Exit status"} {
		require.Contains(t, stdout.String(), want)
	}
}

func TestTheSummaryHasEachFigureInItsPlace(t *testing.T) {
	t.Parallel()
	c := sim.Counts{
		Devices: 2, Connected: 1, Frames: 30, Resent: 4, Acked: 5, Records: 6, Backlog: 7, KeepAlives: 8, Commands: 9, Accepted: 10,
		Reconnects: 11, Failed: 12, Refused: 13, HalfOpen: 14, LastFailure: io.EOF,
	}
	var out bytes.Buffer
	require.NoError(t, summary(&out, c, 3*time.Second))
	require.Equal(t, "after 3.0 s: connected 1 of 2 frames 30, 10.0 a second records acknowledged 6, in 5 frames "+
		"re-sent frames 4 backlog left 7 records acknowledged within p50 0s, p99 0s "+
		"reconnects 11, attempts that failed 12 (refused 13) half-open sockets left 14 keep-alives 8 commands answered 9 "+
		"last failure EOF", strings.Join(strings.Fields(out.String()), " "))
}
