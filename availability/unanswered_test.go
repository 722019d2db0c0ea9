package availability

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// Otherwise the mirror would seem to be set back.
func TestATurnWithoutAnAnswerIsTaken(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(online("a")))
		f := newFeed(r.Mirror)
		require.NoError(t, f.look(t.Context()))
		lost := 0
		r.rdb.AddHook(commands{func(cmd redis.Cmder) error {
			if lost == 3 || !slices.Contains(cmd.Args(), any(take)) {
				return nil
			}
			lost++
			require.NoError(t, r.client.Do(t.Context(), cmd.Args()...).Err())
			return io.EOF
		}})
		for range 3 {
			require.ErrorIs(t, f.look(t.Context()), io.EOF)
		}
		require.NoError(t, f.look(t.Context()))
		require.False(t, f.anew)
		require.InDelta(t, 1, testutil.ToFloat64(r.metrics.seeds), 0)
	})
}

// slow is a hook whose answers arrive late.
type slow struct {
	commands
	by time.Duration
}

func (h slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer time.Sleep(h.by)
		return next(ctx, cmd)
	}
}

// Otherwise reads would say too late that Redis may have missed commits.
func TestAnAnswerThatArrivesLateMakesNothingNewer(t *testing.T) {
	inTime(t, func(t *testing.T, w redistest.World, _ *line) {
		r := newRig(t, w, newFake(online("a")))
		f := newFeed(r.Mirror)
		begun := time.Now()
		require.NoError(t, f.look(t.Context()))
		r.rdb.AddHook(slow{by: time.Second})
		require.NoError(t, f.tell(t.Context(), take, time.Time{}))
		require.False(t, r.Health().FeedAt.After(begun))
	})
}
