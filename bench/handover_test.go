package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/lease"
)

// shortLease: who has resigned does not contend for a fifth of it. Hand-over itself does not depend
// on it.
const shortLease = 3 * time.Second

// handover is how long nobody leads when a leader leaves in good order.
func handover(r *rig) {
	r.section("Hand-over: from a leader's resignation to the next one's acquisition")
	r.say("%d times each. Leaving a term is part of it: the work is joined, the lease released, waiters are woken.", r.handovers)
	var rows [][]string
	for _, n := range []int{1, r.waiters} {
		took := r.handOvers(n)
		slices.Sort(took)
		rows = append(rows, []string{fmt.Sprint(n), brief(quantile(took, 0.5)), brief(quantile(took, 0.95)), brief(quantile(took, 1))})
		r.promise(fmt.Sprintf("hand-over with %d waiting, p95, ms", n), "%.0f", ms(quantile(took, 0.95)), 100)
	}
	r.table([]string{"waiting", "median", "p95", "most"}, rows)
}

// handOvers has the leader resign again and again, with n others waiting.
func (r *rig) handOvers(n int) []time.Duration {
	r.clear()
	ctx, cancel := context.WithCancel(r.Context())
	p := pool.New().WithContext(ctx)
	acquired := make(chan time.Time, n+1)
	electors := make([]*lease.Elector, n+1)
	for i := range electors {
		rdb := redis.NewClient(lease.Options(r.srv.Options()))
		defer rdb.Close()
		e, err := lease.New(lease.Config{
			Client: rdb, Key: r.keys.Lease(), Instance: owner("live", i), TTL: shortLease, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			OnTransition: func(ev lease.Event) {
				if ev == lease.Acquired {
					acquired <- time.Now()
				}
			},
		})
		require.NoError(r, err)
		electors[i] = e
		p.Go(func(ctx context.Context) error {
			return e.Run(ctx, func(ctx context.Context, _ *lease.Term) error {
				<-ctx.Done()
				return nil
			})
		})
	}
	<-acquired
	r.until(func() bool { return r.subscribers() > n }) // everybody listens
	var took []time.Duration
	for range r.handovers {
		wait.For(ctx, 100*time.Millisecond)
		for _, e := range electors {
			if _, leads := e.Term(); leads {
				begun := time.Now()
				e.Resign(time.Second)
				took = append(took, (<-acquired).Sub(begun))
				break
			}
		}
		r.rest(time.Second) // the one that stood back waits again
	}
	cancel()
	require.NoError(r, p.Wait())
	return took
}

// subscribers of the lease's releases.
func (r *rig) subscribers() int {
	counts, err := r.rdb.PubSubNumSub(r.Context(), "{"+r.keys.Lease()+"}:released").Result()
	require.NoError(r, err)
	for _, n := range counts {
		return int(n)
	}
	return 0
}
