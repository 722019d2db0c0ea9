package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	defaultTimeout = 5 * time.Second
	longer         = 12 // times the timeout
	tries          = 5
	firstPause     = 10 * time.Millisecond // doubles each time
	lockTries      = 300                   // once a second
)

//go:embed migrations/*.sql
var migrations embed.FS

var _ availability.Source = (*Source)(nil)

// An Option is a setting of a Source.
type Option func(*Source)

// Timeout bounds each call except Migrate, with retries. Repair, Feed and Page get twelve times as
// much. Default, also if d is not positive: 5 s.
func Timeout(d time.Duration) Option { return func(s *Source) { s.timeout = d } }

// Password replaces the URL's for each new connection, so a changed one needs no restart. now must
// be safe for concurrent use, and fast.
func Password(now func() string) Option { return func(s *Source) { s.password = now } }

// A Source is an [availability.Source] on one database, safe for concurrent use.
type Source struct {
	pool    *pgxpool.Pool // half of the callers' connections: no call waits long for a lock there
	waiting *pgxpool.Pool // the other half: for calls that have to wait
	keep    *pgxpool.Pool // for the other calls that keep the mirror
	feed    *pgxpool.Pool // a single connection
	timeout time.Duration
	clock   availability.Clock

	password func() string // nil: the URL's

	mu   sync.Mutex
	good map[string]string // last valid value of each setting
}

// Open does not wait for the server: see [Source.Migrate]. The tables are those of the first schema
// in search_path. The URL's pool_max_conns limits the connections: by default 4, or one per CPU if
// that is more; at least 2. A call that meets another's lock goes on in a half of them, so that the
// other half serves those whom no lock concerns. Calls that keep the mirror have more and wait for
// no writer: one for Feed, three for the others. Among several hosts in the URL, each connection
// finds the primary. Errors do not contain the URL's password.
func Open(ctx context.Context, url string, opts ...Option) (*Source, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "rollcall"
	}
	// Columns may be timestamps without time zone, which are in UTC.
	config.ConnConfig.RuntimeParams["timezone"] = "UTC"
	if config.ConnConfig.ValidateConnect == nil { // what a standby answers may be old
		config.ConnConfig.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
	s := &Source{good: map[string]string{}}
	for _, set := range opts {
		set(s)
	}
	if s.timeout <= 0 {
		s.timeout = defaultTimeout
	}
	if s.password != nil {
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			c.Password = s.password()
			return nil
		}
	}
	half := max(1, config.MaxConns/2)
	for _, p := range []struct {
		pool  **pgxpool.Pool
		conns int32
		waits time.Duration
	}{
		{&s.pool, max(1, config.MaxConns-half), lockedWaits}, {&s.waiting, half, s.timeout * 4 / 5},
		{&s.keep, 3, keepWaits}, {&s.feed, 1, feedWaits},
	} {
		if *p.pool, err = pool(ctx, config, p.conns, p.waits); err != nil {
			s.Close()
			return nil, fmt.Errorf("postgres: %w", err)
		}
	}
	return s, nil
}

// Close waits for calls in progress.
func (s *Source) Close() {
	for _, pool := range []*pgxpool.Pool{s.pool, s.waiting, s.keep, s.feed} {
		if pool != nil {
			pool.Close()
		}
	}
}

// Migrate creates what is missing: the tables if necessary, and the states with their triggers. It
// needs the rights to create in the schema and triggers on the tables. The first time, nobody can
// write to the tables meanwhile. If several run at once, the others wait.
func (s *Source) Migrate(ctx context.Context) (err error) {
	defer func() { err = wrap("migrate", err) }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	oneAtATime, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, lockTries))
	if err != nil {
		return err
	}
	db := stdlib.OpenDBFromPool(s.waiting)
	p, err := goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName("availability_migrations"),
		goose.WithSessionLocker(oneAtATime), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return errors.Join(err, db.Close())
	}
	_, err = p.Up(ctx)
	return errors.Join(err, p.Close()) // which closes db
}

// within retries f if the server rolled it back because of others, so f must change nothing but the
// database. If somebody else's lock is in the way, it goes on among those who wait.
func (s *Source) within(ctx context.Context, what string, f func(context.Context, *pgxpool.Pool) error) error {
	return again(ctx, s.timeout, what, func(ctx context.Context) error {
		err := f(ctx, s.pool)
		if refused, ok := errors.AsType[*pgconn.PgError](err); ok && refused.Code == lockNotAvailable {
			err = f(ctx, s.waiting)
		}
		return err
	})
}

// again retries f if the server rolled it back because of others. Its limit bounds long reads too,
// against connections whose peer vanished.
func again(ctx context.Context, d time.Duration, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("no answer within %s", d))
	defer cancel()
	pause := firstPause
	for try := 1; ; try++ {
		err := f(ctx)
		if try == tries || !undone(err) || !wait.For(ctx, pause+rand.N(pause)) {
			if err != nil && ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
			}
			return wrap(what, err)
		}
		pause *= 2
	}
}

// undone means a deadlock or a serialization failure.
func undone(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && (refused.Code == "40P01" || refused.Code == "40001")
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("postgres: %s: %w", what, err)
}
