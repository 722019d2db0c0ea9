package availability

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

func TestWhoHasNoSettingsAsksForThemOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newFake()
		var asked atomic.Int32
		source.fault.set(func(op string) error {
			if op != "Settings" {
				return nil
			}
			asked.Add(1)
			time.Sleep(100 * time.Millisecond)
			return errors.New("connection refused")
		})
		r := newRig(t, redistest.World{Options: redistest.Fake(t)}, source)
		for round := range int32(3) {
			var all sync.WaitGroup
			for range 50 { // at once
				all.Go(func() {
					_, err := r.Settings(t.Context())
					require.ErrorContains(t, err, "connection refused")
				})
			}
			all.Wait()
			_, err := r.Accept(t.Context(), "s", "a") // and right after
			require.ErrorContains(t, err, "connection refused")
			require.Equal(t, round+1, asked.Load())
			time.Sleep(settingsAgain)
		}
		source.fault.set(func(string) error { return nil })
		s, err := r.Settings(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, s.MaxCustomers)
		r.failing("Settings")
		_, err = r.Settings(t.Context())
		require.NoError(t, err, "they are known")
	})
}

func TestWhoAsksForSettingsWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, redistest.World{Options: redistest.Fake(t)}, newFake())
		r.source.fault.set(func(string) error { time.Sleep(time.Hour); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.Settings(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(3 * time.Hour) // the source has answered
	})
}

func TestASettingThatMakesNoSenseIsSaidAndNobodyIsJudgedByIt(t *testing.T) {
	swept(t, []State{silent("a"), online("b")}, func(t *testing.T, l *leader) {
		var log bytes.Buffer
		l.sensible = newSensible(slog.New(slog.NewTextHandler(&log, nil)))
		senseless := fmt.Errorf("%w: stale_after_seconds: soon", ErrSetting)
		l.source.fault.set(func(op string) error {
			if op == "Settings committed" {
				return senseless
			}
			return nil
		})
		for range 2 {
			require.Equal(t, janitor.Held, l.offline().Outcome)
			require.Equal(t, heldSenseless, l.Health().Offline)
		}
		require.Empty(t, l.source.flips)
		require.Contains(t, l.Health().SettingsError, "stale_after_seconds: soon")
		require.Equal(t, 1, strings.Count(log.String(), "a setting makes no sense"))

		found, err := l.FindAvailable(t.Context(), 0)
		require.NoError(t, err, "reads go on")
		require.Equal(t, FromValkey, found.From)
		l.source.searching("s")
		_, err = l.Accept(t.Context(), "s", "b")
		require.NoError(t, err, "and so do writers")

		l.source.fault.set(func(string) error { return nil })
		require.Equal(t, janitor.Done, l.offline().Outcome)
		require.Empty(t, l.Health().SettingsError)
		require.Len(t, l.source.flips, 1)
		require.Contains(t, log.String(), "all settings make sense")
	})
}
