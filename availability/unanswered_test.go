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
	"github.com/rollcall-redis/rollcall/janitor"
)

// What was found is gone once it is healed, so it is reported although the source's answer is lost.
func TestWhatWasHealedWithoutAnAnswerIsReportedOnce(t *testing.T) {
	for op, c := range map[string]struct {
		sweep   string
		happens func(l *leader)
		counted func(l *leader) int
	}{
		"Repair": {"availability_reconcile", func(l *leader) {
			wrong := l.source.state("a")
			wrong.Sessions = 2
			l.source.base["a"] = wrong
		}, func(l *leader) int { return l.drift(Base) }},
		"Outbid": {"availability_reconcile", func(l *leader) {
			before := l.source.state("a")
			_, err := l.Offline(l.t.Context(), "a")
			require.NoError(l.t, err)
			l.source.setBack(before)
		}, func(l *leader) int { return l.drift(Ahead) }},
		"AutoOffline": {"availability_offline", func(*leader) {}, func(l *leader) int {
			return int(testutil.ToFloat64(l.metrics.offline))
		}},
	} {
		t.Run(op, func(t *testing.T) {
			swept(t, []State{silent("a")}, func(t *testing.T, l *leader) {
				c.happens(l)
				l.failing(op + " committed")
				require.Equal(t, janitor.Failed, l.pass(c.sweep).Outcome)
				require.Equal(t, 1, c.counted(l))
				l.source.fault.set(func(string) error { return nil })
				require.Equal(t, janitor.Done, l.pass(c.sweep).Outcome)
				require.Equal(t, 1, c.counted(l))
				l.same()
			})
		})
	}
}

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
