package outbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/outbox"
)

func TestWhatWaitsIsBoundedWrittenInOrderAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // what Write has to do with
		away := false
		var at []time.Time
		var got [][]string
		box := outbox.New(outbox.Config[string]{
			Write: func(_ context.Context, batch []string) error {
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
				if away {
					return errors.New("away")
				}
				got = append(got, append([]string{}, batch...))
				return nil
			},
			Within: time.Second, Most: 10, Batch: 4, Share: 6,
			Cost:  func(s string) int { return len(s) },
			Owner: func(s string) string { return s[:1] },
		})
		require.True(t, box.Add("a-----"), "larger than a batch")
		require.False(t, box.Add("a"), "its owner has its share")
		require.True(t, box.Add("bb"))
		require.True(t, box.Add("cc"))
		require.False(t, box.Add("d"), "no room")
		require.Equal(t, 3, box.Waiting())

		goes := func(to bool) { mu.Lock(); defer mu.Unlock(); away = to }
		seen := func() ([][]string, []time.Time) { synctest.Wait(); mu.Lock(); defer mu.Unlock(); return got, at }
		goes(true)
		ctx, stop := context.WithCancel(t.Context())
		left := make(chan []string)
		go func() { left <- box.Run(ctx, 3*time.Second) }()
		time.Sleep(10 * time.Second)
		_, tries := seen()
		var pauses []time.Duration
		for i := range tries[1:] {
			pauses = append(pauses, tries[i+1].Sub(tries[i]))
		}
		require.Equal(t, 50*time.Millisecond, pauses[0])
		require.Equal(t, 3200*time.Millisecond, pauses[6])
		goes(false)
		time.Sleep(5 * time.Second)
		written, _ := seen()
		require.Equal(t, [][]string{{"a-----"}, {"bb", "cc"}}, written)
		require.Zero(t, box.Waiting())
		require.True(t, box.Add("a"), "there is room again, and it is written at once")
		written, _ = seen()
		require.Len(t, written, 3)

		goes(true)
		box.Add("x")
		box.Add("y")
		stop()
		began := time.Now()
		require.Equal(t, []string{"x", "y"}, <-left)
		require.Equal(t, 3*time.Second, time.Since(began))
		require.False(t, box.Add("z"), "it has ended")
	})
}

func TestTheLastEntriesAreWrittenAfterTheEndAndAHungWriteIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var got []int
		box := outbox.New(outbox.Config[int]{Most: 3, Within: time.Minute, Write: func(_ context.Context, batch []int) error {
			got = append(got, batch...)
			return nil
		}})
		require.True(t, box.Add(1))
		require.True(t, box.Add(2))
		stop()
		require.Empty(t, box.Run(ctx, time.Second))
		require.Equal(t, []int{1, 2}, got)

		hung := outbox.New(outbox.Config[int]{Most: 1, Within: time.Minute, Write: func(ctx context.Context, _ []int) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		hung.Add(1)
		began := time.Now()
		require.Equal(t, []int{1}, hung.Run(ctx, time.Second))
		require.Equal(t, time.Second, time.Since(began))
	})
}
