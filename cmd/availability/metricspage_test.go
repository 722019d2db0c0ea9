package main

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
	"github.com/rollcall-redis/rollcall/cmd/availability/internal/database"
	"github.com/rollcall-redis/rollcall/internal/docs/metricspage"
)

func TestTheMetricsPageShowsTheMetricsOfAvailability(t *testing.T) {
	t.Parallel()
	r := metricspage.NewRecorder()
	_, err := api.New(api.Config{Registerer: r})
	require.NoError(t, err)
	metricspage.Check(t, "../../", "Availability: requests", r, *update)

	r = metricspage.NewRecorder()
	db, err := database.Open(t.Context(), database.Config{URL: "postgres:///", Logger: slog.Default(), Registerer: r})
	require.NoError(t, err)
	t.Cleanup(db.Close)
	metricspage.Check(t, "../../", "Availability: PostgreSQL", r, *update)
}
