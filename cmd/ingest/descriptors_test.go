//go:build unix

package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSocketsLeaveDescriptorsForRedis(t *testing.T) {
	t.Parallel()
	var l syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l))
	if l.Cur > 1<<30 { // no limit to speak of
		require.Equal(t, 100_000, affordable(100_000))
		return
	}
	limit := int(l.Cur)
	require.Equal(t, 1, affordable(1))
	got := affordable(limit)
	require.Less(t, got, limit)
	require.GreaterOrEqual(t, got, limit/2)
	require.Equal(t, got, affordable(10*limit))
}
