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

// What Run returns, wrapped.
var (
	// ErrDiverged: the registry, or the stream, is not what it must be.
	ErrDiverged = errors.New("demo: not converged")
	// ErrLate: something that should have happened did not, within Config.Patience.
	ErrLate = errors.New("demo: waited in vain")
	// ErrOccupied: this Redis has another fleet. Its keys are left alone.
	ErrOccupied = errors.New("demo: this Redis is in use by a fleet; name an empty one, or another database")
)

// Config is what a demo needs.
type Config struct {
	// Command makes the process of a replica, which reads its settings from the environment that is
	// added to it.
	Command func() *exec.Cmd
	// Redis is where the replicas meet, and Control another client of it, whose options must be
	// safe for a lease: see [lease.Options].
	Redis, Control redis.UniversalClient
	// RedisURL is what replicas are told about it.
	RedisURL string
	// RedisName is how the timeline names it.
	RedisName string
	// Out takes the timeline.
	Out io.Writer
	// Dir is where the folder of the replicas' logs is made. Default: the system's temporary
	// folder.
	Dir string
	// Devices of the fleet. Default 300.
	Devices int
	// Seed of the fleet.
	Seed uint64
	// Pace is how fast everything goes. Default [Leisurely].
	Pace Pace
}

// Pace is the demo's settings of time.
type Pace struct {
	Beat, TTL       time.Duration // HEARTBEAT_INTERVAL, HEARTBEAT_TTL
	Interval, Lease time.Duration // JANITOR_INTERVAL, JANITOR_LEASE_TTL
	Frame           time.Duration // between two frames of a device
	// what the ladder of reconnects takes for a minute: longer than it takes to sweep a death
	Minute   time.Duration
	Calm     time.Duration // between two steps, so that a reader can follow
	Patience time.Duration // for anything that should happen
}

// Leisurely is a pace that can be followed by reading; the demo takes about a minute.
var Leisurely = Pace{
	Beat: 2 * time.Second, TTL: 6 * time.Second, Interval: 5 * time.Second, Lease: 3 * time.Second,
	Frame: 2 * time.Second, Minute: 12 * time.Second, Calm: 5 * time.Second, Patience: 60 * time.Second,
}

const replicasAtStart = 3

// demo is one run.
type demo struct {
	cfg       Config
	pace      Pace
	keys      registry.Layout
	dir       string // of the replicas' logs
	fleet     *simulate.Fleet
	acked     *acknowledged
	elector   *lease.Elector // never runs; it is asked who leads
	began     time.Time
	heldUntil time.Time  // when sweeping may begin, as was last said
	all       []*replica // that were ever started
}

// Run plays the demo and judges its end. It returns nil if everything converged exactly. Otherwise
// it returns ErrDiverged, ErrLate, ErrOccupied, why a replica ended that should run, the cause of
// ctx, or Redis' error. When it returns, none of its processes runs. After an error the replicas'
// logs are kept in a folder that the timeline names, unless ctx has ended.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.Devices, cfg.Pace = cmp.Or(cfg.Devices, 300), cmp.Or(cfg.Pace, Leisurely)
	d := &demo{cfg: cfg, pace: cfg.Pace, acked: newAcknowledged(), began: time.Now()}
	d.elector, err = lease.New(lease.Config{Client: cfg.Control, Key: d.keys.Lease(), Instance: "demo"})
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := d.free(ctx); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp(cfg.Dir, "rollcall-demo-"); err != nil {
		return fmt.Errorf("demo: a folder for logs: %w", err)
	}
	defer func() {
		for _, r := range d.all { // first, since they write to Redis and to the logs
			r.Kill()
		}
		err = errors.Join(err, d.clean())
		if err == nil || ctx.Err() != nil {
			_ = os.RemoveAll(d.dir) // of no use any more; what is left is in the system's temporary folder
			return
		}
		d.say("the replicas' logs are in %s", d.dir)
	}()
	return d.play(ctx)
}

// say writes a line of the timeline.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.cfg.Out, "%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}
