package availability

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// Otherwise the mirror would seem to be set back.
func TestATurnWithoutAnAnswerIsTaken(t *testing.T) {
	onEmpty(t, newFake(online("a")), func(r *rig) {
		f := newFeed(r.Mirror)
		r.NoError(f.look(r.ctx))
		lost := 0
		r.before(func(cmd redis.Cmder) error {
			if lost == 3 || !slices.Contains(cmd.Args(), any(take)) {
				return nil
			}
			lost++
			r.NoError(r.client.Do(r.ctx, cmd.Args()...).Err())
			return io.EOF
		})
		for range 3 {
			r.ErrorIs(f.look(r.ctx), io.EOF)
		}
		r.NoError(f.look(r.ctx))
		r.False(f.anew)
		r.InDelta(1, testutil.ToFloat64(r.metrics.seeds), 0)
	})
}

// Otherwise reads would say too late that Redis may have missed commits.
func TestAnAnswerThatArrivesLateMakesNothingNewer(t *testing.T) {
	inTime(t, func(r *rig, _ *line) {
		f := newFeed(r.Mirror)
		begun := time.Now()
		r.NoError(f.look(r.ctx))
		r.rdb.AddHook(redistest.Intercept(func(_ context.Context, _ []redis.Cmder, send func() error) error {
			defer time.Sleep(time.Second)
			return send()
		}))
		r.NoError(f.tell(r.ctx, take, time.Time{}))
		r.False(r.Health().FeedAt.After(begun))
	})
}
