package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/cleanup/internal/cycles"
	"github.com/rollcall-redis/rollcall/internal/docs/metricspage"
	"github.com/rollcall-redis/rollcall/orphan"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func TestTheMetricsPageShowsTheMetricsOfCleanup(t *testing.T) {
	t.Parallel()
	r := metricspage.NewRecorder()
	_, err := cycles.New(cycles.Config{Rules: rules.Colyseus(), Registerer: r,
		Removed: func() orphan.Stats { return orphan.Stats{} }})
	require.NoError(t, err)
	metricspage.Check(t, "../../", "The clean-up worker", r, *update)
}
