package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
)

func TestSocketsLeaveDescriptorsForRedis(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{2: 1, 64: 16, 1024: 576, 20_000: 15_648, 1 << 20: 100_000} {
		got := affordable(100_000, limit)
		require.Equal(t, want, got, limit)
		require.LessOrEqual(t, got+gateway.Unidentified(got), max(2, limit-min(reserve, limit/2)))
		require.Equal(t, 1, affordable(1, limit))
	}
}
