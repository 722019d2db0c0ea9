package database_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// No call of others is needed: in a fleet one replica reads the feed, and the others only Redis.
func TestWhetherPostgresAnswersIsKnownWithoutACall(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	d, err := database.Open(t.Context(), database.Config{
		URL: server.Database().URL, Migrate: true, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	is := func(answers bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			st := d.Status()
			return st.Answers == answers && st.Prepared && answers == (st.Error == "")
		}, time.Minute, 10*time.Millisecond)
	}
	is(true)
	server.Kill()
	is(false)
	server.Restart()
	is(true)
}
