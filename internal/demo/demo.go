package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/simulate"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// What Run returns, wrapped.
var (
	// ErrDiverged: the registry, or the stream, is not what it must be.
	ErrDiverged = errors.New("demo: not converged")
	// ErrLate: something that should have happened did not, within Config.Patience.
	ErrLate = errors.New("demo: waited in vain")
	// ErrOccupied: this Redis has a fleet already.
	ErrOccupied = errors.New("demo: this Redis is in use by a fleet; name an empty one, or another database")
)

// Config is what a demo needs.
type Config struct {
	// Command makes the process of a replica, which reads its settings from the environment that is
	// added to it.
	Command func() *exec.Cmd
	// Redis is where the replicas meet, and Control another client of it, whose options must be
	// safe for a lease: see [lease.Options].
	Redis, Control *redis.Client
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
	// what the ladder of reconnects takes for one: longer than it takes to sweep a death
	Minute         time.Duration
	Calm           time.Duration // for the eye, between two steps
	Patience       time.Duration // for anything that should happen
	look, notice   time.Duration // between two looks at Redis; until the balancer notices a death
	stoppingWithin time.Duration // SHUTDOWN_GRACE
}

// Leisurely is a pace that can be followed by reading; the demo takes about a minute.
var Leisurely = Pace{
	Beat: 2 * time.Second, TTL: 6 * time.Second, Interval: 5 * time.Second, Lease: 3 * time.Second,
	Frame: 2 * time.Second, Minute: 12 * time.Second, Calm: 5 * time.Second, Patience: 60 * time.Second,
}

const replicasAtStart = 3

// demo is one run.
type demo struct {
	cfg    Config
	pace   Pace
	keys   registry.Layout
	dir    string // of the replicas' logs
	fleet  *simulate.Fleet
	acked  *ledger
	holder *lease.Elector // never runs; it knows how to ask who leads
	began  time.Time
	held   time.Time  // until when nothing may be swept, as was last said
	all    []*replica // that were ever started
}

// Run tells the story and judges its end. It returns nil if everything converged exactly; else
// ErrDiverged, ErrLate, ErrOccupied, what ended a replica that should run, the cause of ctx, or
// Redis' error. When it returns, no process of its own runs. Then logs of the replicas are kept in
// a folder that the timeline names, unless ctx ended it.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.Devices = cmp.Or(cfg.Devices, 300)
	cfg.Pace = cmp.Or(cfg.Pace, Leisurely)
	cfg.Pace.look = cmp.Or(cfg.Pace.look, 20*time.Millisecond)
	cfg.Pace.notice = cmp.Or(cfg.Pace.notice, cfg.Pace.Lease/3)
	cfg.Pace.stoppingWithin = cmp.Or(cfg.Pace.stoppingWithin, 10*time.Second)
	d := &demo{cfg: cfg, pace: cfg.Pace, acked: newLedger(), began: time.Now()}
	if d.holder, err = lease.New(lease.Config{Client: cfg.Control, Key: d.keys.Lease(), Instance: "demo"}); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if err := d.free(ctx); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp(cfg.Dir, "rollcall-demo-"); err != nil {
		return fmt.Errorf("demo: a folder for logs: %w", err)
	}
	// Last of all: the processes first, since they write to both.
	defer func() {
		d.killAll()
		err = errors.Join(err, d.clean())
		if err == nil || ctx.Err() != nil {
			_ = os.RemoveAll(d.dir) // of no use any more; what is left is in the system's temporary folder
			return
		}
		d.say("the replicas' logs are in %s", d.dir)
	}()
	return d.tell(ctx)
}

// say writes a line of the timeline.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.cfg.Out, "%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// settings are the environment of a replica.
func (d *demo) settings(id string) []string {
	p := d.pace
	return []string{
		"REDIS_URL=" + d.cfg.RedisURL, "INSTANCE_ID=" + id, "INGEST_ADDR=127.0.0.1:0", "HTTP_ADDR=127.0.0.1:0",
		"HEARTBEAT_INTERVAL=" + p.Beat.String(), "HEARTBEAT_TTL=" + p.TTL.String(),
		"JANITOR_INTERVAL=" + p.Interval.String(), "JANITOR_LEASE_TTL=" + p.Lease.String(),
		"INGEST_MAX_CONNS=" + strconv.Itoa(4*d.cfg.Devices), "SHUTDOWN_GRACE=" + p.stoppingWithin.String(),
		"LOG_FORMAT=json",
	}
}

// killAll ends every replica at once and returns when they are gone.
func (d *demo) killAll() {
	for _, r := range d.all {
		_ = r.kill()
	}
}
