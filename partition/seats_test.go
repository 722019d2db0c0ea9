package partition

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
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

func TestThreeContendForEachPartitionAndAllWhereThereAreFewer(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 2, 3, 30, 100} {
		const partitions = 16
		who, ranks := make([]int, partitions), make([]map[int]bool, partitions)
		most := 0
		for _, id := range fleet(replicas) {
			s := sitting(id, partitions)
			s.met(fleet(replicas))
			first := 0
			for k := range partitions {
				after, yes := s.contend(k)()
				if yes {
					require.Equal(t, time.Duration(s.rank[k])*step, after)
					who[k]++
				}
				if ranks[k] == nil {
					ranks[k] = map[int]bool{}
				}
				require.False(t, ranks[k][s.rank[k]], "two of one rank")
				ranks[k][s.rank[k]] = true
				if s.rank[k] == 0 {
					first++
				}
			}
			most = max(most, first)
		}
		for k := range partitions {
			require.Equal(t, min(replicas, leastSeats), who[k])
		}
		require.LessOrEqual(t, most, partitions/replicas+5, "the hash spreads")
	}
}

func TestOnlyContendersWithAHeartbeatAreRanked(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		of := guard.Layout{Prefix: w.Prefix}
		ctx, ids := t.Context(), fleet(2*asked+3)
		require.NoError(t, w.Client.SAdd(ctx, of.Roster(), "embeds the registry alone").Err())
		require.NoError(t, w.Client.Set(ctx, of.Heartbeat("embeds the registry alone"), "x", time.Hour).Err())
		_, err := w.Client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, id := range ids {
				p.SAdd(ctx, of.Contenders(), id)
				p.Set(ctx, of.Heartbeat(id), "x", time.Hour)
			}
			return nil
		})
		require.NoError(t, err)
		s := &seats{client: w.Client, gap: time.Minute, beats: guard.Timing{Interval: 10 * time.Minute, TTL: time.Hour}}
		living, err := s.living(ctx, of)
		require.NoError(t, err)
		require.ElementsMatch(t, ids, living)
		require.NoError(t, w.Client.Del(ctx, of.Heartbeat(ids[0]), of.Heartbeat(ids[7])).Err())
		living, err = s.living(ctx, of)
		require.NoError(t, err)
		require.ElementsMatch(t, append(ids[1:7:7], ids[8:]...), living)
		require.ElementsMatch(t, living, w.Client.SMembers(ctx, of.Contenders()).Val(), "the dead are taken off")
		require.NoError(t, w.Client.Del(ctx, of.Contenders()).Err())
		require.NoError(t, w.Client.Set(ctx, of.Contenders(), "no set", 0).Err())
		_, err = s.living(ctx, of)
		require.ErrorContains(t, err, "WRONGTYPE")
	})
}

func TestOneReadingOfVeryManyContendersIsBounded(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	of, c, ctx := guard.Layout{}, srv.Client(), t.Context()
	rubbish := make([]any, 2*most)
	for i := range rubbish {
		rubbish[i] = i
	}
	require.NoError(t, c.SAdd(ctx, of.Contenders(), rubbish...).Err())
	require.NoError(t, c.SAdd(ctx, of.Contenders(), "me").Err())
	require.NoError(t, c.Set(ctx, of.Heartbeat("me"), "x", time.Hour).Err())
	s := &seats{client: c, gap: time.Minute, beats: guard.Timing{Interval: 10 * time.Minute, TTL: time.Hour}}
	_, err := s.living(ctx, of)
	require.NoError(t, err)
	require.InDelta(t, most, c.SCard(ctx, of.Contenders()).Val(), page, "half of them")
	_, err = s.living(ctx, of)
	require.NoError(t, err)
	living, err := s.living(ctx, of)
	require.NoError(t, err)
	require.Equal(t, []string{"me"}, living)
	require.Equal(t, []string{"me"}, c.SMembers(ctx, of.Contenders()).Val())
}

func TestBeforeTheFirstReadingEverybodyContends(t *testing.T) {
	t.Parallel()
	s := sitting("a", 4)
	for k := range 4 {
		after, yes := s.contend(k)()
		require.True(t, yes)
		require.Zero(t, after)
	}
}

func TestWhoLeadsMoreThanItsShareComesLater(t *testing.T) {
	t.Parallel()
	for leads, later := range []time.Duration{0, 0, 2 * step, 4 * step, steps * step, steps * step} {
		s := sitting("a", 8, []int{0, 1, 2, 4, 5}[:leads]...)
		s.peers = 8
		after, yes := s.contend(3)()
		require.True(t, yes)
		require.Equal(t, later, after)
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
