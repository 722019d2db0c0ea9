package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/teltonika/simulate"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

var (
	// ErrDiverged means that the registry or the stream differs from the expected state.
	ErrDiverged = errors.New("demo: not converged")
	// ErrLate means that an expected event did not happen within Config.Patience.
	ErrLate = errors.New("demo: waited in vain")
)

// Config configures a demo.
type Config struct {
	// Command returns a replica's process. Run adds settings to its environment.
	Command func(args ...string) *exec.Cmd
	// Redis is the replicas' server, which nobody else uses. Control is another client of it, safe
	// for a lease: see [lease.Options].
	Redis, Control redis.UniversalClient
	RedisURL       string
	// Out receives the timeline.
	Out io.Writer
	// Dir is the parent of the folder for the replicas' logs. Default: the system's temporary
	// folder.
	Dir string
	// Devices is the size of the fleet. Default 300.
	Devices int
	Seed    uint64
	// Default [Leisurely].
	Pace Pace
}

// Pace has a demo's timings.
type Pace struct {
	Beat, TTL       time.Duration // HEARTBEAT_INTERVAL, HEARTBEAT_TTL
	Interval, Lease time.Duration // JANITOR_INTERVAL, JANITOR_LEASE_TTL
	Frame           time.Duration // between two frames of a device
	// a minute on the ladder of reconnects, longer than the sweep of a dead replica takes
	Minute   time.Duration
	Calm     time.Duration // between two steps, for the reader
	Patience time.Duration // for any expected event
}

// Leisurely is slow enough to read along; the demo takes about a minute.
var Leisurely = Pace{
	Beat: 2 * time.Second, TTL: 6 * time.Second, Interval: 5 * time.Second, Lease: 3 * time.Second,
	Frame: 2 * time.Second, Minute: 12 * time.Second, Calm: 5 * time.Second, Patience: 60 * time.Second,
}

const replicasAtStart = 3

type demo struct {
	cfg       Config
	pace      Pace
	keys      registry.Layout
	dir       string // the replicas' logs
	fleet     *simulate.Fleet
	acked     *acknowledged
	elector   *lease.Elector // never runs; reports the leader
	began     time.Time
	heldUntil time.Time
	all       []*replica // ever started
}

// Run plays the demo and judges the result. It returns nil if everything converged exactly, or
// else ErrDiverged, ErrLate, the error of a replica that ended by itself, the cause
// of ctx, or Redis' error. None of its processes outlives it. After an error the replicas' logs
// are kept in a folder that the timeline names, unless ctx has ended.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.Devices, cfg.Pace = cmp.Or(cfg.Devices, 300), cmp.Or(cfg.Pace, Leisurely)
	d := &demo{cfg: cfg, pace: cfg.Pace, acked: newAcknowledged(), began: time.Now()}
	d.elector, err = lease.New(lease.Config{Client: cfg.Control, Key: d.keys.Lease(), Instance: "demo"})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if d.dir, err = os.MkdirTemp(cfg.Dir, "rollcall-demo-"); err != nil {
		return fmt.Errorf("demo: a folder for logs: %w", err)
	}
	defer func() {
		for _, r := range d.all { // first, since they write to the logs
			r.Kill()
		}
		if err == nil || ctx.Err() != nil {
			_ = os.RemoveAll(d.dir) // a failure leaves files only in the system's temporary folder
			return
		}
		d.say("the replicas' logs are in %s", d.dir)
	}()
	return d.play(ctx)
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.cfg.Out, "%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}
