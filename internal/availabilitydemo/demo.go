package availabilitydemo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	source "github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/service"
	"github.com/rollcall-redis/rollcall/internal/workforce"
	"github.com/rollcall-redis/rollcall/lease"
)

// What Run returns, wrapped.
var (
	// ErrDiverged: at the end Redis, Postgres and the apps do not agree.
	ErrDiverged = errors.New("availabilitydemo: not converged")
	// ErrOverruled: somebody was set offline too soon after an acknowledged heartbeat.
	ErrOverruled = errors.New("availabilitydemo: set offline in spite of a heartbeat")
	// ErrLate: something that should have happened did not.
	ErrLate = errors.New("availabilitydemo: waited in vain")
)

// Config is what a demo needs. All fields are required but those that say otherwise.
type Config struct {
	// Command makes the process of a replica, which reads its settings from the environment that is
	// added to it.
	Command func() *exec.Cmd
	// Postgres is a folder that has initdb and postgres, RedisServer a program.
	Postgres, RedisServer string
	// Out takes the timeline. Terminal: it can write over a line.
	Out      io.Writer
	Terminal bool
	// Mitras is their number. Default 300.
	Mitras int
	// Seed of the workforce.
	Seed uint64
}

// The demo's settings of time. It takes about a minute.
const (
	stale      = 6 * time.Second // stale_after_seconds
	ping       = 2 * time.Second // heartbeat_cadence_seconds
	mostEach   = 3               // max_customers_per_mitra
	calm       = 3 * time.Second // between two steps, so that a reader can follow
	patience   = time.Minute     // for anything that should happen
	askTime    = time.Second     // for a question to a server
	replicas   = 3
	silentApps = 10 // that die at once
)

// environment are the settings of each replica.
var environment = []string{
	"HTTP_ADDR=127.0.0.1:0", "LOG_FORMAT=json", "HEARTBEAT_INTERVAL=1s", "HEARTBEAT_TTL=4s",
	"AVAILABILITY_LEASE_TTL=3s", "MITRA_AUTO_OFFLINE_SWEEP_SECONDS=1", "VALKEY_ONLINE_MIRROR_SWEEP_SECONDS=5",
	"HEARTBEAT_MIRROR_INTERVAL_SECONDS=2",
}

// demo is one run.
type demo struct {
	cfg     Config
	began   time.Time
	dir     string // of everything
	secret  string // of tokens
	pg      *postgres
	db      *pgxpool.Pool
	rdb     redis.UniversalClient
	url     string         // of Redis
	elector *lease.Elector // never runs; it is asked who leads
	force   *workforce.Force
	truth   *workforce.Truth
	all     []*replica // that were ever started

	out   sync.Mutex
	width int // of the live line that stands at the bottom of a terminal; 0: there is none
}

// Run plays the demo and judges its end. It returns nil if all agree; else ErrDiverged, ErrOverruled,
// ErrLate, why a server or a replica ended, or the cause of ctx. When it returns, none of its
// processes runs. After an error the logs are kept in a folder that the timeline names, unless ctx
// has ended.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.Mitras = cmp.Or(cfg.Mitras, 300)
	d := &demo{cfg: cfg, began: time.Now(), secret: rand.Text() + rand.Text()}
	if d.dir, err = os.MkdirTemp("", "rollcall-availability-"); err != nil {
		return fmt.Errorf("availabilitydemo: %w", err)
	}
	defer func() {
		if err == nil || ctx.Err() != nil {
			_ = os.RemoveAll(d.dir) // what is left is in the system's temporary folder
			return
		}
		d.say("all logs are in %s", d.dir)
	}()
	if d.pg, err = startPostgres(ctx, cfg.Postgres, d.dir); d.pg != nil {
		defer d.pg.stop()
	}
	if err != nil {
		return err
	}
	server, url, err := startRedis(ctx, cfg.RedisServer, d.dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	d.url = url
	var target service.Redis
	if err := target.Parse(url); err != nil {
		return fmt.Errorf("availabilitydemo: %w", err)
	}
	clients, err := service.Connect(target, askTime)
	if err != nil {
		return err
	}
	defer clients.Close()
	d.rdb = clients.Data
	d.elector, err = lease.New(lease.Config{Client: clients.Control, Key: guard.Layout{}.Lease(), Instance: "demo"})
	if err != nil {
		return fmt.Errorf("availabilitydemo: %w", err)
	}
	if d.db, err = pgxpool.New(ctx, d.pg.url()); err != nil {
		return fmt.Errorf("availabilitydemo: %w", err)
	}
	defer d.db.Close()
	defer d.killAll()
	err = d.prepare(ctx)
	if err == nil {
		err = d.play(ctx)
	}
	if ctx.Err() != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return err
}

// prepare makes the schema, and short times.
func (d *demo) prepare(ctx context.Context) error {
	schema, err := source.Open(ctx, d.pg.url())
	if err != nil {
		return err
	}
	defer schema.Close()
	if err := schema.Migrate(ctx); err != nil {
		return err
	}
	for name, value := range map[string]any{
		"stale_after_seconds": int(stale.Seconds()), "heartbeat_cadence_seconds": int(ping.Seconds()),
		"max_customers_per_mitra": mostEach,
	} {
		if err := schema.PutSetting(ctx, name, value); err != nil {
			return err
		}
	}
	return nil
}

// say writes a line of the timeline.
func (d *demo) say(format string, args ...any) {
	d.out.Lock()
	defer d.out.Unlock()
	line := fmt.Sprintf("%6.1fs  %s", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
	if d.width > 0 {
		fmt.Fprintf(d.cfg.Out, "\r%-*s\n", d.width, line) // over the live line
		d.width = 0
		return
	}
	fmt.Fprintln(d.cfg.Out, line)
}

// live writes the live line: over the last one on a terminal.
func (d *demo) live(line string) {
	d.out.Lock()
	defer d.out.Unlock()
	line = "         | " + line
	if !d.cfg.Terminal {
		fmt.Fprintln(d.cfg.Out, line)
		return
	}
	fmt.Fprintf(d.cfg.Out, "\r%-*s", d.width, line)
	d.width = len(line)
}
