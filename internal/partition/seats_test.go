package partition

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// sitting returns a replica's seats, where it leads these partitions.
func sitting(instance string, partitions int, leads ...int) *seats {
	return &seats{
		instance: instance, ttl: 15 * time.Second, rank: make([]int, partitions), peers: 1,
		layouts: make([]guard.Layout, partitions),
		leads:   func() []int { return slices.Clone(leads) },
	}
}

func fleet(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprintf("ingest-%d", i))
	}
	return ids
}

func TestRanksAreDistinctAndSpreadAndTheLowerOneComesLater(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 2, 3, 30, 100} {
		const partitions = 16
		most, ranks := 0, map[[2]int]bool{}
		for _, id := range fleet(replicas) {
			s := sitting(id, partitions)
			require.Zero(t, s.yield(5), "before the first reading all are alike")
			s.met(fleet(replicas))
			leads := 0
			for k, rank := range s.rank {
				yield := time.Duration(rank) * step
				if rank >= first {
					yield += s.ttl / 2
				}
				require.Equal(t, yield, s.yield(k))
				ranks[[2]int{k, rank}] = true
				if rank == 0 {
					leads++
				}
			}
			most = max(most, leads)
		}
		require.Len(t, ranks, partitions*replicas)
		require.LessOrEqual(t, most, partitions/replicas+5, "the hash spreads")
	}
}

func TestOnlyContendersWithAHeartbeatAreRanked(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		of := guard.Layout{Prefix: w.Prefix}
		ctx, s := t.Context(), &seats{client: w.Client, gap: time.Minute}
		living, err := s.living(ctx, of)
		require.NoError(t, err)
		require.Empty(t, living)
		require.NoError(t, w.Client.SAdd(ctx, of.Roster(), "embeds the registry alone").Err())
		for i, id := range append(fleet(30), "embeds the registry alone") {
			if i < 30 {
				require.NoError(t, w.Client.SAdd(ctx, of.Contenders(), id).Err())
			}
			if i >= 10 {
				require.NoError(t, w.Client.Set(ctx, of.Heartbeat(id), "x", time.Hour).Err())
			}
		}
		living, err = s.living(ctx, of)
		require.NoError(t, err)
		require.ElementsMatch(t, fleet(30)[10:], living)
		require.NoError(t, w.Client.Set(ctx, of.Contenders(), "no set", 0).Err())
		_, err = s.living(ctx, of)
		require.ErrorContains(t, err, "WRONGTYPE")
	})
}

func TestWhoLeadsMoreThanItsShareComesLater(t *testing.T) {
	t.Parallel()
	for leads, later := range []time.Duration{0, 0, 2 * step, 4 * step} {
		s := sitting("a", 8, []int{0, 1, 2}[:leads]...)
		s.peers = 8
		require.Equal(t, later, s.yield(3))
	}
}

func TestLeasesBeyondTheShareAndOneAreGivenUp(t *testing.T) {
	t.Parallel()
	all := []int{0, 1, 2, 3, 4, 5, 6, 7}
	alone := sitting("ingest-0", 8, all...)
	require.Empty(t, alone.excess())
	alone.met(nil)
	require.Empty(t, alone.excess(), "nobody else lives, as far as is known")
	s := sitting("ingest-0", 8, all...)
	s.met(fleet(4))
	given := s.excess()
	require.Len(t, given, 8-2-1)
	for _, k := range given {
		for _, kept := range all {
			if !slices.Contains(given, kept) {
				require.GreaterOrEqual(t, s.rank[k], s.rank[kept])
			}
		}
	}
	few := sitting("ingest-0", 8, 1, 2, 3)
	few.met(fleet(4))
	require.Empty(t, few.excess())
}

func TestASweepFailsIfItDidWhereItCouldRun(t *testing.T) {
	t.Parallel()
	elsewhere, unknown := &janitor.NotLeaderError{Leader: "b"}, &janitor.UnknownSweepError{Name: "x"}
	require.NoError(t, failed([]error{elsewhere, nil, unknown}))
	require.ErrorIs(t, failed([]error{elsewhere, nil, context.Canceled}), context.Canceled)
	require.Equal(t, error(elsewhere), failed([]error{elsewhere, unknown}))
	require.Equal(t, error(unknown), failed([]error{unknown, elsewhere}))
}
