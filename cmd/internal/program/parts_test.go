package program

import (
	"context"
	"errors"
	"log/slog"
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
		p := NewParts(ctx, 10*time.Second, slog.New(slog.DiscardHandler))
		p.Go("first", untilStopped(500*time.Millisecond, nil))
		p.Go("slow", untilStopped(2500*time.Millisecond, nil))
		p.Go("last", untilStopped(0, nil))
		cancel()
		p.Wait()
		asked := time.Now()
		require.Empty(t, p.Stop(1, "first"))
		require.Equal(t, 500*time.Millisecond, time.Since(asked))
		require.Equal(t, []string{"slow"}, p.Stop(2, "slow"), "its share of the grace is over")
		require.Equal(t, 2*time.Second, time.Since(asked))
		require.Empty(t, p.Stop(4, "last"), "the slow one is waited for again")
		require.Equal(t, 3*time.Second, time.Since(asked))
		require.NoError(t, p.End())
	})
}

func TestAPartThatFailsOrOverrunsIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, late := errors.New("broken"), errors.New("broken while it stopped")
		p := NewParts(t.Context(), 10*time.Second, slog.New(slog.DiscardHandler))
		p.Go("fails", func(context.Context) error { return broken })
		p.Go("fails late", untilStopped(0, late))
		p.Go("hangs", untilStopped(time.Minute, nil))
		p.Wait() // although the context has not ended
		p.Stop(9, "fails", "fails late", "hangs")
		err := p.End()
		require.ErrorIs(t, err, broken)
		require.ErrorIs(t, err, late)
		require.ErrorIs(t, err, errOverrun)
		require.ErrorContains(t, err, "(10s): hangs")
		time.Sleep(time.Minute)
	})
}
