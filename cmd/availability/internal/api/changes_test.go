package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/availability/postgres"
)

// dated is a source of mitras alone, which counts how often it is asked.
type dated struct {
	Source
	mu    sync.Mutex
	asked int
	of    map[string]postgres.Mitra
	takes time.Duration
	err   error
}

func (d *dated) Mitra(ctx context.Context, id string) (postgres.Mitra, error) {
	d.mu.Lock()
	d.asked++
	m, ok := d.of[id]
	err := d.err
	d.mu.Unlock()
	select {
	case <-time.After(d.takes):
	case <-ctx.Done():
		return m, ctx.Err()
	}
	if err == nil && !ok {
		err = availability.ErrNotFound
	}
	return m, err
}

func (d *dated) has(id string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[id] = postgres.Mitra{LastOnline: at}
}

// changed runs a test of the times of mitras in a bubble.
func changed(t *testing.T, test func(t *testing.T, d *dated, k *changesAsked)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &dated{of: map[string]postgres.Mitra{}, takes: time.Millisecond}
		test(t, d, newChangesAsked(d))
	})
}

func TestAPostgresThatDoesNotAnswerIsAskedOnceASecondForTimes(t *testing.T) {
	changed(t, func(t *testing.T, d *dated, k *changesAsked) {
		d.err = errors.New("connection refused")
		for range 5 {
			for i := range 100 {
				require.Nil(t, k.of(t.Context(), fmt.Sprint(i)))
			}
			time.Sleep(changesAgain)
		}
		require.Equal(t, 5, d.asked)

		// A caller that goes away stops nobody from asking.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Nil(t, k.of(ctx, "a"))
		d.has("a", time.Now())
		d.err = nil
		require.NotNil(t, k.of(t.Context(), "a"))

		// One that hangs keeps a poll for its patience, and the next ones not at all.
		d.takes = time.Hour
		begun := time.Now()
		for i := range 100 {
			require.Nil(t, k.of(t.Context(), fmt.Sprint("hangs ", i)))
		}
		require.Equal(t, patience, time.Since(begun))
	})
}
