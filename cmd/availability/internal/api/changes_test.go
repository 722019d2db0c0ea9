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

func (d *dated) has(id string, version int64, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.of[id] = postgres.Mitra{State: availability.State{ID: id, Version: version}, LastOnline: at}
}

// changed runs a test of the times of mitras in a bubble.
func changed(t *testing.T, test func(t *testing.T, d *dated, k *changesCache)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &dated{of: map[string]postgres.Mitra{}, takes: time.Millisecond}
		test(t, d, newChangesCache(d))
	})
}

func TestPollsOfTheStatusAskPostgresOnceAVersion(t *testing.T) {
	changed(t, func(t *testing.T, d *dated, k *changesCache) {
		first := time.Now().UTC()
		d.has("a", 1, first)
		for range 1000 {
			require.Equal(t, first, *k.of(t.Context(), "a", 1).LastOnline)
		}
		require.Equal(t, 1, d.asked)

		// Redis has the next version before or after Postgres was asked.
		second := first.Add(time.Hour)
		d.has("a", 2, second)
		require.Equal(t, first, *k.of(t.Context(), "a", 1).LastOnline, "as old as the state beside it")
		require.Equal(t, second, *k.of(t.Context(), "a", 2).LastOnline)
		require.Equal(t, second, *k.of(t.Context(), "a", 2).LastOnline)
		require.Equal(t, 2, d.asked)

		// A statement that sets nothing but a time.
		d.has("a", 2, first)
		time.Sleep(changesFor)
		require.Equal(t, first, *k.of(t.Context(), "a", 2).LastOnline)
		require.Equal(t, 3, d.asked)

		for range 3 { // a state without its version
			require.NotNil(t, k.of(t.Context(), "a", 0))
		}
		require.Equal(t, 6, d.asked)
		for range 3 { // a mitra that was deleted
			require.Nil(t, k.of(t.Context(), "gone", 7))
		}
		require.Equal(t, 7, d.asked)
	})
}

func TestManyPollsOfAStatusAtOnceAreOneQuestion(t *testing.T) {
	changed(t, func(t *testing.T, d *dated, k *changesCache) {
		d.has("a", 1, time.Now())
		var polls sync.WaitGroup
		for range 500 {
			polls.Go(func() {
				if k.of(t.Context(), "a", 1) == nil {
					t.Error("no times")
				}
			})
		}
		polls.Wait()
		require.LessOrEqual(t, d.asked, heartbeatsAtSource)
	})
}

func TestAPostgresThatDoesNotAnswerIsAskedOnceASecondForTimes(t *testing.T) {
	changed(t, func(t *testing.T, d *dated, k *changesCache) {
		d.err = errors.New("connection refused")
		for range 5 {
			for i := range 100 {
				require.Nil(t, k.of(t.Context(), fmt.Sprint(i), 1))
			}
			time.Sleep(changesAgain)
		}
		require.Equal(t, 5, d.asked)

		// A caller that goes away stops nobody from asking.
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Nil(t, k.of(ctx, "a", 1))
		d.has("a", 1, time.Now())
		d.err = nil
		require.NotNil(t, k.of(t.Context(), "a", 1))

		// One that hangs keeps a poll for its patience, and the next ones not at all.
		d.takes = time.Hour
		begun := time.Now()
		for i := range 100 {
			require.Nil(t, k.of(t.Context(), fmt.Sprint("hangs ", i), 1))
		}
		require.Equal(t, patience, time.Since(begun))
	})
}

func TestTheTimesOfMoreMitrasThanAreKeptAreAskedForAgain(t *testing.T) {
	changed(t, func(t *testing.T, d *dated, k *changesCache) {
		d.takes = 0
		for i := range 3*mostChanges + 1 {
			k.keep(fmt.Sprint(i), knownChanges{&changes{}, 1, time.Now()})
		}
		require.LessOrEqual(t, len(k.recent)+len(k.older), 2*mostChanges)
		_, known := k.known(fmt.Sprint(3*mostChanges), 1)
		require.True(t, known)
		_, known = k.known(fmt.Sprint(3*mostChanges-1), 1)
		require.True(t, known, "of the older ones")
		_, known = k.known("0", 1)
		require.False(t, known)
	})
}
