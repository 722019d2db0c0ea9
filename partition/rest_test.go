package partition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestOfOnePartitionThreeContendWithoutDelayAndTheOthersByLot(t *testing.T) {
	t.Parallel()
	const replicas = 30
	contend, asked := 0, 0
	for _, id := range fleet(replicas) {
		s := sitting(id, 1)
		s.lot = func(peers int) bool {
			asked++
			require.Equal(t, replicas, peers)
			return true
		}
		s.met(fleet(replicas))
		before := asked
		after, yes := s.contend(0)()
		require.True(t, yes)
		require.Equal(t, time.Duration(0), after)
		if asked == before {
			contend++
		}
	}
	require.Equal(t, contenders, contend)
	require.Equal(t, replicas-contenders, asked)
}
