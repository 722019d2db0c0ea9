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

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

func TestWhoHasNoSettingsAsksForThemOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := newFake()
		var asked atomic.Int32
		source.at("Settings", func() error {
			asked.Add(1)
			time.Sleep(100 * time.Millisecond)
			return errors.New("connection refused")
		})
		r := newRig(t, redistest.World{Options: redistest.Fake(t)}, source)
		for round := range int32(3) {
			var all sync.WaitGroup
			for range 50 { // at once
				all.Go(func() {
					_, err := r.Settings(r.ctx)
					r.ErrorContains(err, "connection refused")
				})
			}
			all.Wait()
			_, err := r.Accept(r.ctx, "s", "a") // and right after
			r.ErrorContains(err, "connection refused")
			r.Equal(round+1, asked.Load())
			time.Sleep(settingsAgain)
		}
		r.mended()
		r.Equal(3, fine(r, r.Settings).MaxCustomers)
		r.failing("Settings")
		fine(r, r.Settings) // they are known
	})
}

func TestWhoAsksForSettingsWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, redistest.World{Options: redistest.Fake(t)}, newFake())
		r.source.fault.set(func(string) error { time.Sleep(time.Hour); return nil })
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		_, err := r.Settings(ctx)
		r.ErrorIs(err, context.DeadlineExceeded)
		time.Sleep(3 * time.Hour) // the source has answered
	})
}

func TestASettingThatMakesNoSenseIsSaidAndNobodyIsJudgedByIt(t *testing.T) {
	swept(t, []State{silent("a"), online("b")}, func(l *leader) {
		var log bytes.Buffer
		l.sensible = newSensible(slog.New(slog.NewTextHandler(&log, nil)))
		senseless := fmt.Errorf("%w: stale_after_seconds: soon", ErrSetting)
		l.source.at("Settings committed", func() error { return senseless })
		for range 2 {
			l.sweeps(janitor.Held)
			l.Equal(heldSenseless, l.Health().Offline)
		}
		l.Empty(l.source.flips)
		l.Contains(l.Health().SettingsError, "stale_after_seconds: soon")
		l.Equal(1, strings.Count(log.String(), "a setting makes no sense"))

		l.Equal(FromValkey, l.found(0).From)
		l.source.searching("s")
		l.did(l.Accept(l.ctx, "s", "b"))

		l.mended()
		l.sweeps(janitor.Done)
		l.Empty(l.Health().SettingsError)
		l.Len(l.source.flips, 1)
		l.Contains(log.String(), "all settings make sense")
	})
}
