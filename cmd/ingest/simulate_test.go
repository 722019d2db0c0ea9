package main

import (
	"bytes"
	"context"
	"fmt"
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
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/simulate"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// books holds the records acknowledged to devices, each "IMEI time".
type books struct {
	mu   sync.Mutex
	told map[string]bool
}

func (b *books) acknowledged(imei string, records []teltonika.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range records {
		b.told[imei+" "+strconv.FormatUint(records[i].Timestamp, 10)] = true
	}
}

// requireStored fails if an acknowledged record is missing from the stream. It returns their
// number.
func (b *books) requireStored(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	messages, err := rdb.WithTimeout(patience).XRange(t.Context(), gateway.Stream, "-", "+").Result()
	require.NoError(t, err)
	stored := map[string]bool{}
	for _, m := range messages {
		stored[fmt.Sprint(m.Values["imei"], " ", m.Values["ts"])] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for record := range b.told {
		require.True(t, stored[record], record)
	}
	return len(b.told)
}

// fleet is a running simulation that keeps books.
type fleet struct {
	*simulate.Fleet
	books books
	stop  func()
}

func simulating(t *testing.T, cfg simulate.Config) *fleet {
	t.Helper()
	f := &fleet{books: books{told: map[string]bool{}}}
	cfg.Acknowledged = f.books.acknowledged
	var err error
	f.Fleet, err = simulate.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	f.stop = sync.OnceFunc(func() { cancel(); require.NoError(t, <-ended) })
	t.Cleanup(f.stop)
	return f
}

func (f *fleet) await(t *testing.T, what func(simulate.Counts) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return what(f.Counts()) }, patience, 5*time.Millisecond)
}

func TestEveryRecordAcknowledgedToAFleetIsInTheStream(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := serving(t, on(server)...)
	f := simulating(t, simulate.Config{
		Devices: 50, Targets: []string{p.devices}, Interval: 500 * time.Millisecond, Records: 3, Codec: teltonika.Codec8E, Backlog: 45,
		HalfOpen: 0.1, LadderUnit: 10 * time.Millisecond, Seed: 1,
	})
	f.await(t, func(c simulate.Counts) bool {
		return c.Backlog == 0 && c.Acked > 350 && c.HalfOpen > 10 && c.Resent > 3 && c.Connected > 45
	})
	n, err := routable(t.Context(), server.Client(), registry.Layout{}, 1, maps.Keys(f.Where()))
	require.NoError(t, err)
	require.Greater(t, n, 40)
	f.stop()
	require.Greater(t, f.books.requireStored(t, server.Client()), 50*45+100)
}

func TestAReplicaThatIsKilledUnderLoadLosesNothingThatItAcknowledged(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	victim := servingChild(t, on(server, quick...)...)
	stays := serving(t, on(server, quick...)...)
	f := simulating(t, simulate.Config{
		Devices: 40, Targets: []string{victim.Said("listening for devices", "addr"), stays.devices}, Interval: 200 * time.Millisecond, Records: 2,
		Backlog: 500, LadderUnit: 100 * time.Millisecond, Seed: 2,
	})
	f.await(t, func(c simulate.Counts) bool { return c.Connected == 40 && c.Acked > 300 })
	victim.Kill() // under way: dozens of frames
	f.SetTargets(stays.devices)
	f.await(t, func(c simulate.Counts) bool { return c.Connected == 40 && c.Reconnects > 5 && c.Resent > 0 })
	// All are at the remaining one, and routable there.
	require.Eventually(t, func() bool {
		n, err := routable(t.Context(), server.Client(), registry.Layout{}, 1, maps.Keys(f.Where()))
		return err == nil && n == 40
	}, patience, 20*time.Millisecond)
	f.stop()
	require.Greater(t, f.books.requireStored(t, server.Client()), 1000)
}

func TestSimulateShowsAFleetAndEndsWhenItsTimeIsUp(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := serving(t, on(server)...)
	var stdout, stderr bytes.Buffer
	args := strings.Fields("simulate --devices 7 --interval 50ms --codec 8e --backlog 5 --seed 42 --duration 4s --targets " + p.devices + " --redis redis://" + server.Addr())
	require.Equal(t, exitOK, run(t.Context(), args, nil, &stdout, &stderr), stderr.String())
	require.Empty(t, stderr.String())
	require.Contains(t, stdout.String(), "simulating 7 trackers, a frame of codec 8E every 50ms, at "+p.devices+"; seed 42\n")
	require.Regexp(t, `connected +7 of 7\n`, stdout.String())
	require.Regexp(t, `routable +7\n`, stdout.String())
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

func TestSimulateWithoutFlagsIsAHundredTrackersAtTheirOwnPace(t *testing.T) {
	t.Parallel()
	s := new(simulation)
	c := &cli.Command{Name: "ingest simulate", Settings: s.table(), Check: s.check}
	require.NoError(t, c.Load([]string{"--seed=1"}, nil))
	require.Equal(t, simulate.Config{
		Devices: 100, Interval: 10 * time.Second, Records: 1, Targets: []string{"127.0.0.1:5027"}, Seed: 1, Codec: teltonika.Codec8,
		LadderUnit: time.Minute, Timeout: 30 * time.Second, FirstIMEI: 35_630_704_000_000,
	}, s.cfg)
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
	for _, url := range []string{"redis://:hunter2@h:x", "embedded"} {
		require.Equal(t, exitUsage, simulated("--redis "+url))
		require.Contains(t, stderr.String(), "--redis: expected a URL")
		require.NotContains(t, stderr.String(), "hunter2")
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

func TestTooManyDevicesForTheLimitOfOpenFilesAreRefused(t *testing.T) {
	t.Parallel()
	require.NoError(t, descriptorsFor(10))
	require.Equal(t, 10, simulate.Config{Devices: 5, HalfOpen: 0.1}.Sockets())
	if err := descriptorsFor(1 << 40); err != nil { // only Unix knows the limit
		require.ErrorContains(t, err, "ulimit -Hn")
	}
}
