// Package demo shows the program availability at work, on servers of its own with a simulated
// workforce. Apps die without a word, the leader is killed, Redis is emptied, Postgres is
// restarted. At the end Redis, Postgres and the apps must agree, and nobody may have been set
// offline too soon after an acknowledged heartbeat.
package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	source "github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/workforce"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

// Config configures a demo. Fields are required unless they name a default.
type Config struct {
	// Command returns the command of a replica, for which Run adds the environment.
	Command func(args ...string) *exec.Cmd
	// Postgres is the folder of initdb and postgres, RedisServer a program.
	Postgres, RedisServer string
	// Out receives the timeline.
	Out io.Writer
	// Mitras by default is 300.
	Mitras int
	Seed   uint64
	// Pace by default is [Leisurely].
	Pace Pace
}

// Pace has the demo's times.
type Pace struct {
	Stale     time.Duration // stale_after_seconds, in whole seconds
	Ping      time.Duration // between two pings of an app
	Beat, TTL time.Duration // HEARTBEAT_INTERVAL, HEARTBEAT_TTL
	Lease     time.Duration // AVAILABILITY_LEASE_TTL
	Compare   time.Duration // VALKEY_ONLINE_MIRROR_SWEEP_SECONDS
	Calm      time.Duration // between two steps, so that a reader can follow
}

// Leisurely is slow enough to read along: about a minute.
var Leisurely = Pace{
	Stale: 6 * time.Second, Ping: 2 * time.Second, Beat: time.Second, TTL: 4 * time.Second,
	Lease: 3 * time.Second, Compare: 5 * time.Second, Calm: 3 * time.Second,
}

const (
	mostEach   = 3               // max_customers_per_mitra
	patience   = 2 * time.Minute // for anything that should happen: a hold may take a minute
	askTime    = time.Second     // for one call to a server
	replicas   = 3
	silentApps = 10 // die at once
	lookEvery  = 2 * time.Second
)

func (d *demo) environment(id string) []string {
	p := d.pace
	seconds := func(t time.Duration) string { return fmt.Sprint(t.Seconds()) }
	return []string{
		"INSTANCE_ID=" + id, "REDIS_URL=" + d.url, "DATABASE_URL=" + d.pg.url(), "JWT_HS256_SECRET=" + d.secret,
		"HTTP_ADDR=127.0.0.1:0", "LOG_FORMAT=json",
		"HEARTBEAT_INTERVAL=" + p.Beat.String(), "HEARTBEAT_TTL=" + p.TTL.String(),
		"AVAILABILITY_LEASE_TTL=" + p.Lease.String(), "MITRA_AUTO_OFFLINE_SWEEP_SECONDS=" + seconds(p.Beat),
		"VALKEY_ONLINE_MIRROR_SWEEP_SECONDS=" + seconds(p.Compare),
		"HEARTBEAT_MIRROR_INTERVAL_SECONDS=" + seconds(p.Ping),
	}
}

type demo struct {
	cfg     Config
	pace    Pace
	began   time.Time
	dir     string
	secret  string // signs tokens
	pg      *postgres
	db      *pgxpool.Pool
	rdb     redis.UniversalClient
	url     string         // of Redis
	elector *lease.Elector // never runs, only reads who leads
	force   *workforce.Force
	truth   *workforce.Truth

	all []*replica // that have not been killed

	mu sync.Mutex // of Out
}

// Run plays the demo and judges its end. All its processes have ended by then. After an error it
// keeps the logs in a folder that the timeline names, unless ctx has ended.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.Mitras, cfg.Pace = cmp.Or(cfg.Mitras, 300), cmp.Or(cfg.Pace, Leisurely)
	d := &demo{cfg: cfg, pace: cfg.Pace, began: time.Now(), secret: rand.Text() + rand.Text()}
	// Keep the name short: sockets in this folder may have names of about 100 characters.
	if d.dir, err = os.MkdirTemp("", "rollcall-"); err != nil {
		return fmt.Errorf("availabilitydemo: %w", err)
	}
	defer func() {
		if err == nil || ctx.Err() != nil {
			_ = os.RemoveAll(d.dir)
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
	var target connect.Redis
	if err := target.Parse(url); err != nil {
		return fmt.Errorf("availabilitydemo: %w", err)
	}
	clients, err := connect.Open(ctx, &target, askTime)
	if err != nil {
		return err
	}
	defer clients.Close()
	d.rdb = clients.Data
	d.elector, err = lease.New(lease.Config{
		Client: clients.Control, Key: guard.Layout{}.Lease(), Instance: "demo",
	})
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
		"stale_after_seconds": int(d.pace.Stale.Seconds()), "max_customers_per_mitra": mostEach,
		"heartbeat_cadence_seconds": max(1, int(d.pace.Ping.Seconds())),
	} {
		if err := schema.PutSetting(ctx, name, value); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.cfg.Out, "%6.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}
