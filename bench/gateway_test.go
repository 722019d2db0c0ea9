package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// gateway is the whole program under a fleet of simulated devices.
func gateway(r *rig) {
	n := r.gateway
	r.section("Gateway: devices on one replica")
	g := r.ingest()
	defer g.stop()
	r.say("%s devices, one record each %s. The program, Redis and the devices share this machine's %d cores: what the devices take, "+
		"the replica has less of.", many(n), r.beat, runtime.NumCPU())
	empty := g.memory()
	fleet, err := sim.Simulate(sim.Config{Devices: n, Targets: []string{g.devices}, Interval: r.beat, Ramp: time.Millisecond, Seed: 1})
	require.NoError(r, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { fleet.Run(ctx) })
	defer running.Wait()
	defer cancel()
	begun := time.Now()
	r.until(func() bool { return r.entries() == n })
	registered := time.Since(begun)
	before := fleet.Counts().Acknowledgements
	r.rest(2 * r.beat)
	took := fleet.Counts().Acknowledgements
	for i := range took {
		took[i] -= before[i]
	}
	each := float64(g.memory()-empty) / float64(n)
	require.Equal(r, n, fleet.Counts().Accepted, "a device had to come again")
	r.table([]string{"memory a connection", "without any", "acknowledged, p50", "p99", "registered a second"}, [][]string{{
		fmt.Sprintf("%.1f kB", each/1e3), fmt.Sprintf("%.1f MB", float64(empty)/1e6), brief(took.Quantile(0.5)), brief(took.Quantile(0.99)),
		digits(float64(n) / registered.Seconds()),
	}})
	r.promise("gateway: memory a connection, kB", "%.1f", each/1e3, 16)
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
	binary := filepath.Join(r.TempDir(), "ingest")
	args := append([]string{"build", "-o", binary}, redistest.Raced()...)
	out, err := exec.CommandContext(r.Context(), "go", append(args, "github.com/rollcall-redis/rollcall/cmd/ingest")...).CombinedOutput()
	require.NoError(r, err, "%s", out)
	g := &program{r: r}
	cmd := exec.Command(binary)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.TempDir(), "REDIS_URL=redis://" + r.srv.Addr(),
		"INGEST_ADDR=127.0.0.1:0", "HTTP_ADDR=127.0.0.1:0", "LOG_FORMAT=json"}
	p, err := process.Start(cmd, process.Options{Log: filepath.Join(r.TempDir(), "log")})
	require.NoError(r, err)
	g.stop = sync.OnceFunc(func() {
		_ = p.Signal(syscall.SIGTERM)
		if status := p.ExitCode(); status != 0 {
			r.Errorf("the program ended with status %d: %s", status, p.Log())
		}
	})
	r.Cleanup(g.stop)
	r.until(func() bool {
		require.True(r, p.Runs(), "the program ended: %s", p.Log())
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
	require.NoError(g.r, err)
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, "process_resident_memory_bytes "); ok {
			return int64(number(value))
		}
	}
	require.Fail(g.r, "no process_resident_memory_bytes")
	return 0
}
