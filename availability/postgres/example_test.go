package postgres_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// embed is all of a replica but work, which is a service's own.
func embed(
	ctx context.Context, databaseURL string, opt *redis.Options, work func(context.Context, *availability.Mirror) error,
) error {
	source, err := postgres.Open(ctx, databaseURL) // the truth
	if err != nil {
		return err
	}
	defer source.Close()
	if err := source.Migrate(ctx); err != nil { // or somebody else has, who may
		return err
	}
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	defer func() { _ = errors.Join(rdb.Close(), ctl.Close()) }()
	mirror, err := availability.New(availability.Config{Source: source, Client: rdb, Control: ctl})
	if err != nil {
		return err
	}
	// This replica's own heartbeat: the leader's witness is made of it.
	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl, NoReverseIndex: true})
	if err != nil {
		return err
	}
	jan, err := janitor.New(janitor.Config{Client: rdb, Control: ctl, Registry: reg, Sweeps: mirror.Sweeps()})
	if err != nil {
		return err
	}
	g := pool.New().WithContext(ctx).WithCancelOnError()
	g.Go(mirror.Run) // every replica: seeds Redis, brings what changes
	g.Go(reg.Run)
	g.Go(jan.Run) // one replica at a time: auto-offline, heartbeats to Postgres, comparison
	g.Go(func(ctx context.Context) error { return work(ctx, mirror) })
	return g.Wait()
}

// use is what docs/availability.md shows, between the two marks: a test of internal/docs compares
// them.
func use(ctx context.Context, mirror *availability.Mirror, session, mitra string) error {
	// page: use
	<-mirror.Ready() // for as long as you like: until then reads fall back to Postgres
	if _, err := mirror.Online(ctx, mitra); err != nil {
		return err
	}
	beat, err := mirror.Heartbeat(ctx, mitra) // Redis alone
	if err != nil || beat != availability.BeatKept {
		return err // BeatNotOnline: the app goes online again
	}
	found, err := mirror.FindAvailable(ctx, 10) // found.From says who answered
	if err != nil || len(found.Value) == 0 {
		return err
	}
	_, err = mirror.Accept(ctx, session, found.Value[0].ID) // ErrFull, ErrTaken: try the next one
	return err
	// page: end
}

func TestWhatThePageShowsWorks(t *testing.T) {
	t.Parallel()
	const mitra, session = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	db, server := migrated.Database(t), redistest.Start(t)
	_, err := db.Exec(t.Context(), `INSERT INTO mitras (id) VALUES ('`+mitra+`')`)
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), `INSERT INTO chat_sessions (id) VALUES ('`+session+`')`)
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	done := errors.New("the work is done")
	err = embed(ctx, db.URL, server.Options(), func(ctx context.Context, mirror *availability.Mirror) error {
		if err := use(ctx, mirror, session, mitra); err != nil {
			return err
		}
		return done
	})
	require.ErrorIs(t, err, done)
	var holder string
	require.NoError(t, db.QueryRow(context.WithoutCancel(ctx),
		`SELECT mitra_id::text FROM chat_sessions WHERE status = 'active'`).Scan(&holder))
	require.Equal(t, mitra, holder)
}
