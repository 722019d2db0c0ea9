// Package database is cmd/availability's PostgreSQL: prepared at the start, and watched.
package database

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// Config configures a Database. URL is required.
type Config struct {
	URL        string
	Password   func() string // the current one; nil: the URL's
	Migrate    bool          // create what the schema lacks; else check it
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// A Database remembers whether PostgreSQL answered last. Run asks it.
type Database struct {
	*postgres.Source
	migrate   bool
	preparing *streak.Streak
	tried     chan struct{} // closed after the first attempt to prepare the schema

	mu       sync.Mutex
	last     time.Time // when it last answered
	failed   error
	prepared bool
}

// Status is PostgreSQL's part of the status.
type Status struct {
	// Answers: it answered when it was asked last, and not long ago.
	Answers    bool      `json:"answers"`
	LastAnswer time.Time `json:"last_answer,omitzero"`
	// Error is why it did not.
	Error string `json:"error,omitempty"`
	// Prepared: the migration has run, or with MIGRATE=off, the schema was found complete.
	Prepared bool `json:"prepared"`
	// Connections counts open ones, Busy those in use, Most is the limit.
	Connections int32 `json:"connections"`
	Busy        int32 `json:"busy"`
	Most        int32 `json:"most"`
}

const (
	// between two attempts to prepare the schema
	prepareAgain = time.Second
	// others wait this long for the first attempt, which hangs if the server is frozen
	triedWithin = 2 * time.Second
	// how long a success proves that PostgreSQL answers: a frozen server fails no calls
	answersFor = 5 * time.Second
	// between two questions whether it answers: one replica of a fleet reads the feed
	askAgain = time.Second
)

// Open does not wait for the server.
func Open(ctx context.Context, c Config) (*Database, error) {
	var opts []postgres.Option
	if c.Password != nil {
		opts = append(opts, postgres.Password(c.Password))
	}
	source, err := postgres.Open(ctx, c.URL, opts...)
	if err != nil {
		return nil, err
	}
	d := &Database{
		Source: source, migrate: c.Migrate, tried: make(chan struct{}),
		preparing: streak.New(c.Logger, "PostgreSQL cannot be prepared: trying again", "PostgreSQL is prepared"),
	}
	if c.Registerer != nil {
		for _, collector := range d.collectors() {
			if err := c.Registerer.Register(collector); err != nil {
				source.Close()
				return nil, err
			}
		}
	}
	return d, nil
}

// Try returns nil if PostgreSQL accepts this password instead of the URL's.
func Try(ctx context.Context, url, password string) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.ConnConfig.Password = password
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func (d *Database) note(err error) {
	if errors.Is(err, context.Canceled) { // the caller went away
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failed = err; err == nil {
		d.last = time.Now()
	}
}

// Run prepares the schema, and then asks PostgreSQL again and again whether it answers. It returns
// why the schema cannot be prepared.
func (d *Database) Run(ctx context.Context) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	for {
		d.note(d.Ping(ctx))
		if !wait.For(ctx, askAgain) {
			return nil
		}
	}
}

// prepare migrates, or checks that somebody has, until that succeeds. It fails only if the server
// answers and refuses, so that retrying would not help.
func (d *Database) prepare(ctx context.Context) error {
	for first := true; ; first = false {
		err := d.prepareOnce(ctx)
		d.note(err)
		if first {
			close(d.tried)
		}
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		if hopeless(err) {
			return err
		}
		d.preparing.Note(err)
		if !wait.For(ctx, prepareAgain) {
			return nil
		}
	}
	d.preparing.Note(nil)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.prepared = true
	return nil
}

// WhenTried delays run until the first attempt to prepare the schema has ended, or for a while:
// requests that Redis can answer do not wait for PostgreSQL.
func (d *Database) WhenTried(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		timer := time.NewTimer(triedWithin)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return nil
		case <-d.tried:
		case <-timer.C:
		}
		return run(ctx)
	}
}

func (d *Database) prepareOnce(ctx context.Context) error {
	if d.migrate {
		return d.Migrate(ctx)
	}
	err := d.Check(ctx)
	if errors.Is(err, postgres.ErrLacking) {
		// The remedy comes first: a log line may cut the list.
		err = fmt.Errorf("MIGRATE is off: the owner of the tables has to run \"availability migrate\", and to enable "+
			"triggers that were disabled: %w", err)
	}
	return err
}

// hopeless: a password, database, right or table is wrong or missing.
func hopeless(err error) bool {
	if errors.Is(err, postgres.ErrLacking) {
		return true
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(refused.Code) < 2 {
		return false
	}
	switch refused.Code[:2] {
	case "28", "3D", "3F", "42":
		return true
	}
	return false
}

// Status does not call PostgreSQL.
func (d *Database) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	pool := d.Stat()
	st := Status{
		Answers:    d.failed == nil && time.Since(d.last) < answersFor,
		LastAnswer: d.last, Prepared: d.prepared,
		Connections: pool.Open, Busy: pool.Busy, Most: pool.Most,
	}
	if d.failed != nil {
		st.Error = d.failed.Error()
	}
	return st
}

func (d *Database) collectors() []prometheus.Collector {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	counter := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, value)
	}
	return []prometheus.Collector{
		gauge("availability_postgres_connections", "Connections to PostgreSQL that are open.",
			func() float64 { return float64(d.Stat().Open) }),
		gauge("availability_postgres_connections_busy", "Connections to PostgreSQL that are in use.",
			func() float64 { return float64(d.Stat().Busy) }),
		gauge("availability_postgres_connections_most", "Connections to PostgreSQL that there may be.",
			func() float64 { return float64(d.Stat().Most) }),
		counter("availability_postgres_waits_total", "Times that a call waited for a connection.",
			func() float64 { return float64(d.Stat().Waits) }),
		counter("availability_postgres_wait_seconds_total", "How long calls waited for a connection, in all.",
			func() float64 { return d.Stat().Waited.Seconds() }),
		gauge("availability_postgres_answers", "1 while PostgreSQL answers this process.",
			func() float64 {
				if d.Status().Answers {
					return 1
				}
				return 0
			}),
	}
}
