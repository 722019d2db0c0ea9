package program

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// untilStopped ends so long after it was told to stop.
func untilStopped(late time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(late)
		return err
	}
}

func TestPartsStopOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		var mu sync.Mutex
		at := map[string]time.Duration{}
		notes := func(name string, late time.Duration) Part {
			return Part{name, func(ctx context.Context) error {
				<-ctx.Done()
				mu.Lock()
				at[name] = time.Since(began)
				mu.Unlock()
				time.Sleep(late)
				return nil
			}, map[string]int{"first": 1, "slow": 2, "last": 4}[name]}
		}
		parts := []Part{notes("last", 0), notes("slow", 2500*time.Millisecond), notes("first", 500*time.Millisecond)}
		cancel()
		var overdue []string
		err := runAll(ctx, 10*time.Second, slog.New(slog.DiscardHandler), parts, func(left []string) {
			overdue = append(overdue, left...)
		})
		require.NoError(t, err)
		require.Equal(t, map[string]time.Duration{"first": 0, "slow": 500 * time.Millisecond, "last": 2 * time.Second}, at,
			"the last one begins to stop when the share of the slow one is over")
		require.Equal(t, []string{"slow"}, overdue)
		require.Equal(t, 3*time.Second, time.Since(began), "the slow one is waited for again")
	})
}

func TestAPartThatFailsOrOverrunsIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, late := errors.New("broken"), errors.New("broken while it stopped")
		err := runAll(t.Context(), 10*time.Second, slog.New(slog.DiscardHandler), []Part{
			{"fails", func(context.Context) error { return broken }, 9}, // although the context has not ended
			{"fails late", untilStopped(0, late), 9},
			{"hangs", untilStopped(time.Minute, nil), 9},
		}, func([]string) {})
		require.ErrorIs(t, err, broken)
		require.ErrorIs(t, err, late)
		require.ErrorIs(t, err, errOverrun)
		require.ErrorContains(t, err, "(10s): hangs")
		time.Sleep(time.Minute)
	})
}
