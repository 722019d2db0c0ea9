package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

const (
	telemetry    = "telemetry:teltonika"
	telemetryMax = 1_000_000 // the program's default
	backlogEach  = 50        // records that each device has stored: five frames
)

// gateway is the whole program under a fleet of simulated devices, and under hostile peers.
func gateway(r *rig) {
	n, hostile := r.gateway, r.gateway/10
	r.section("Gateway: devices on one replica")
	g := r.ingest()
	defer g.stop()
	r.say("%s devices, one record each %s; then as many again, each with %d records to get rid of, a frame of ten at a time. The program, Redis and the devices share this machine's "+
		"cores, %d of them: what the devices take, the replica has less of. Open files at most: %s.", many(n), r.beat, backlogEach, runtime.NumCPU(), openFiles())

	empty := g.memory()
	fleet, stop := r.simulated(sim.Config{Devices: n, Targets: []string{g.devices}, Interval: r.beat, Ramp: time.Millisecond, Seed: 1})
	begun := time.Now()
	r.until(func() bool { return r.entries() == n })
	registered := time.Since(begun)
	calm := r.watch(fleet)
	held := g.memory()
	each := float64(held-empty) / float64(n)

	peers := r.hostile(g.devices, hostile)
	beset := r.watch(fleet)
	besetMemory := g.memory()
	met := peers()
	stop()
	require.Equal(r.t, n, fleet.Counts().Accepted, "a device had to come again")

	r.table([]string{"", "devices alone", fmt.Sprintf("%d hostile sockets beside them", hostile)}, [][]string{
		{"acknowledgement, p50", brief(calm.Quantile(0.5)), brief(beset.Quantile(0.5))},
		{"acknowledgement, p99", brief(calm.Quantile(0.99)), brief(beset.Quantile(0.99))},
		{"replica's resident memory", mib(held), mib(besetMemory)},
	})
	r.say("All registered %s after the first began to connect: %s a second. Memory a connection: %.1f kB, the replica without any %s. The hostile sent garbage, HTTP, "+
		"a TLS hello, frames of 4 GiB and one byte a second, and came again whenever they were thrown out: %d connections.",
		brief(registered), digits(float64(n)/registered.Seconds()), each/1e3, mib(empty), met)
	r.promise("gateway: memory a connection, kB", "%.1f", each/1e3, 16)

	r.until(func() bool { return r.entries() == 0 })
	records := n * backlogEach
	var frames sim.Counts
	var took time.Duration
	stored := r.measure(records, func() {
		fleet, stop := r.simulated(sim.Config{
			Devices: n, Targets: []string{g.devices}, Interval: time.Hour, Ramp: time.Millisecond, Backlog: backlogEach, Seed: 2,
		})
		r.until(func() bool { return fleet.Counts().Connected == n })
		before, begun := fleet.Counts(), time.Now()
		r.until(func() bool { return fleet.Counts().Backlog == 0 })
		took, frames = time.Since(begun), fleet.Counts()
		frames.Acked -= before.Acked
		stop()
	})
	bare := r.bareStore(records)
	r.table([]string{"storing records", "", "Redis CPU", "per record", "× floor", "records/s"}, [][]string{
		{"XADD, 500 a pipeline", string(floor), brief(bare.cpu), brief(bare.perEntry(bare.cpu)), "1.00", digits(float64(records) / bare.wall.Seconds())},
		{"gateway, registrations included", string(ours), brief(stored.cpu), brief(stored.perEntry(stored.cpu)),
			fmt.Sprintf("%.2f", float64(stored.cpu)/float64(max(1, bare.cpu))), digits(float64(frames.Acked*10) / took.Seconds())},
	})
	r.say("%s frames acknowledged a second; acknowledgement p50 %s, p99 %s, with %s devices that send the next frame at once. Where the time of Redis went: %s.",
		digits(float64(frames.Acked)/took.Seconds()), brief(frames.Acknowledgements.Quantile(0.5)), brief(frames.Acknowledgements.Quantile(0.99)), many(n), stored.dearest())
}

// bareStore is the floor: the records that are there, once more.
func (r *rig) bareStore(n int) cost {
	ctx := r.t.Context()
	sample, err := r.rdb.XRevRangeN(ctx, telemetry, "+", "-", 1000).Result()
	require.NoError(r.t, err)
	require.NotEmpty(r.t, sample)
	return r.measure(n, func() {
		pipe := r.rdb.Pipeline()
		for i := range n {
			pipe.XAdd(ctx, &redis.XAddArgs{Stream: "bare", MaxLen: telemetryMax, Approx: true, Values: sample[i%len(sample)].Values})
			if pipe.Len() == batch || i == n-1 {
				_, err := pipe.Exec(ctx)
				require.NoError(r.t, err)
			}
		}
	})
}

// simulated runs a fleet until stop is called.
func (r *rig) simulated(cfg sim.Config) (fleet *sim.Simulation, stop func()) {
	fleet, err := sim.Simulate(cfg)
	require.NoError(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		fleet.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	r.t.Cleanup(stop)
	return fleet, stop
}

// watch is what acknowledgements took in two rounds of frames.
func (r *rig) watch(fleet *sim.Simulation) sim.Latency {
	before := fleet.Counts().Acknowledgements
	r.rest(2 * r.beat)
	after := fleet.Counts().Acknowledgements
	for i := range after {
		after[i] -= before[i]
	}
	return after
}

// hostile opens so many sockets that mean no good, again and again. What it returns ends them and
// says how many there were.
func (r *rig) hostile(addr string, n int) (end func() int) {
	handshake := append([]byte{0, 15}, "356307042441013"...)
	manners := []func(c net.Conn, done <-chan struct{}){
		func(c net.Conn, _ <-chan struct{}) { _, _ = c.Write(bytes.Repeat([]byte{0xAB}, 600)) },
		func(c net.Conn, _ <-chan struct{}) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") },
		func(c net.Conn, _ <-chan struct{}) { _, _ = c.Write([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3}) },
		func(c net.Conn, _ <-chan struct{}) {
			_, _ = c.Write(append(bytes.Clone(handshake), 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 8))
		},
		func(c net.Conn, done <-chan struct{}) {
			for _, b := range handshake {
				select {
				case <-done:
					return
				case <-time.After(time.Second):
				}
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
		},
	}
	done := make(chan struct{})
	counts := make([]int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for {
				if c, err := net.DialTimeout("tcp", addr, 10*time.Second); err == nil {
					counts[i]++
					closed := make(chan struct{})
					go func() { // until it is thrown out
						defer close(closed)
						_, _ = io.Copy(io.Discard, c)
					}()
					manners[i%len(manners)](c, done)
					select {
					case <-closed:
					case <-done:
					}
					_ = c.Close()
					<-closed
				}
				select {
				case <-done:
					return
				case <-time.After(time.Second):
				}
			}
		})
	}
	return func() (met int) {
		close(done)
		wg.Wait()
		for _, c := range counts {
			met += c
		}
		return met
	}
}

// program is a process of the real thing.
type program struct {
	r             *rig
	http, devices string
	stop          func()
}

// ingest builds the program, and starts it on this rig's Redis.
func (r *rig) ingest() *program {
	r.clear()
	binary := filepath.Join(r.t.TempDir(), "ingest")
	args := append([]string{"build", "-o", binary}, redistest.Raced()...)
	out, err := exec.CommandContext(r.t.Context(), "go", append(args, "github.com/rollcall-redis/rollcall/cmd/ingest")...).CombinedOutput()
	require.NoError(r.t, err, "%s", out)
	g := &program{r: r}
	cmd := exec.Command(binary)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.t.TempDir(), "REDIS_URL=redis://" + r.srv.Addr(),
		"INGEST_ADDR=127.0.0.1:0", "HTTP_ADDR=127.0.0.1:0", "LOG_FORMAT=json"}
	p, err := process.Start(cmd, process.Options{Log: filepath.Join(r.t.TempDir(), "log")})
	require.NoError(r.t, err)
	g.stop = sync.OnceFunc(func() {
		_ = p.Signal(syscall.SIGTERM)
		if status := p.ExitCode(); status != 0 {
			r.t.Errorf("the program ended with status %d: %s", status, p.Log())
		}
	})
	r.t.Cleanup(g.stop)
	r.until(func() bool {
		require.True(r.t, p.Runs(), "the program ended: %s", p.Log())
		g.http, g.devices = p.Said("serving HTTP", "addr"), p.Said("listening for devices", "addr")
		if g.http == "" || g.devices == "" {
			return false
		}
		_, err := g.get("/readyz")
		return err == nil
	})
	return g
}

func (g *program) get(path string) (string, error) {
	answer, err := http.Get("http://" + g.http + path)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(answer.Status)
	}
	return string(body), err
}

// memory is what the process has resident, in bytes.
func (g *program) memory() int64 {
	body, err := g.get("/metrics")
	require.NoError(g.r.t, err)
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, "process_resident_memory_bytes "); ok {
			return int64(number(value))
		}
	}
	require.Fail(g.r.t, "no process_resident_memory_bytes")
	return 0
}

// openFiles is the bound that the program and the devices have each.
func openFiles() string {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err.Error()
	}
	return strconv.FormatUint(limit.Max, 10)
}

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }
