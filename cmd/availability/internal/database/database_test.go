package database_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// The feed waits for a frozen Redis, which has to take what was read before.
func TestWhileNobodyReadsTheFeedACountTellsWhetherPostgresAnswers(t *testing.T) {
	t.Parallel()
	d, err := database.Open(t.Context(), database.Config{
		URL: pgtest.Database(t).URL, Migrate: true, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer d.Close()
	_, err = d.CountOnline(t.Context())
	require.Error(t, err, "there are no tables")
	require.False(t, d.Status().Answers)
	require.Equal(t, err.Error(), d.Status().Error)
	require.NoError(t, d.Prepare(t.Context()))
	_, err = d.CountOnline(t.Context())
	require.NoError(t, err)
	require.True(t, d.Status().Answers)
	require.Empty(t, d.Status().Error)
}
