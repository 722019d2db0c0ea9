package availability

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/rollcall-redis/rollcall/internal/streak"
	"github.com/rollcall-redis/rollcall/internal/subscribe"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// without an announcement
	settingsFresh = 10 * time.Second
	// after a failed first read; everybody gets that failure meanwhile
	settingsAgain = time.Second
	// without a message, after which the subscription is tested
	silence = 5 * time.Second
)

// Settings returns what an administrator may change, read at most ten seconds ago while the source
// answers. It fails only if the source has never answered.
func (m *Mirror) Settings(ctx context.Context) (Settings, error) {
	if s := m.settings.Load(); s != nil {
		return *s, nil
	}
	asked := m.computing.DoChan("settings", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*m.patience)
		defer cancel()
		return m.firstSettings(ctx)
	})
	select {
	case r := <-asked:
		s, _ := r.Val.(Settings)
		return s, r.Err
	case <-ctx.Done():
		return Settings{}, context.Cause(ctx)
	}
}

// firstSettings shares one call, and its failure for another second, so that callers do not all hit
// a recovering source.
func (m *Mirror) firstSettings(ctx context.Context) (s Settings, err error) {
	m.mu.Lock()
	failed, at := m.settingsFailed, m.settingsFailedAt
	m.mu.Unlock()
	if failed != nil && time.Since(at) < settingsAgain {
		return s, failed
	}
	err = m.fallback(ctx, func(ctx context.Context) (err error) {
		if s, err = m.readSettings(ctx); errors.Is(err, ErrSetting) {
			return nil
		}
		return err
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settingsFailed, m.settingsFailedAt = err, time.Now()
	return s, err
}

// readSettings returns settings with ErrSetting, too.
func (m *Mirror) readSettings(ctx context.Context) (Settings, error) {
	read := m.settingsRead.Add(1)
	s, err := m.source.Settings(ctx)
	if err != nil {
		err = fmt.Errorf("availability: settings: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := read > m.settingsOf // a later call has newer ones and has reported them
	if newest && ctx.Err() == nil {
		m.noteSettings(err)
	}
	if err != nil && !errors.Is(err, ErrSetting) {
		return Settings{}, err
	}
	if newest {
		m.settingsOf = read
		if was := m.settings.Load(); was != nil && !was.RequirePing && s.RequirePing {
			m.required = time.Now()
		}
		m.settings.Store(&s)
	}
	return s, err
}

// keepSettings has its own goroutine, so locked settings delay nobody else.
func (m *Mirror) keepSettings(ctx context.Context) {
	for {
		pause := settingsFresh
		if _, err := m.readSettings(ctx); err != nil && !errors.Is(err, ErrSetting) {
			pause = min(settingsAgain, 4*m.c.Tick)
		}
		if !wait.For(ctx, pause) {
			return
		}
	}
}

func newSensible(log *slog.Logger) *streak.Streak {
	return streak.New(log, "a setting makes no sense: its last good value applies, or its default; "+
		"nobody goes offline for silence meanwhile", "all settings make sense")
}

// noteSettings requires mu.
func (m *Mirror) noteSettings(err error) {
	m.health.SettingsError = textOf(err)
	if err != nil && !errors.Is(err, ErrSetting) {
		m.settling.Note(err)
		return
	}
	m.settling.Note(nil)
	m.sensible.Note(err)
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// PutSetting changes a setting, by its name in app_config, on all replicas: at once, or if the
// announcement is lost within ten seconds. It also fails if the setting is stored but cannot be
// read again: this replica then has the old one.
func (m *Mirror) PutSetting(ctx context.Context, name string, value any) error {
	if err := m.source.PutSetting(ctx, name, value); err != nil {
		return fmt.Errorf("availability: setting %s: %w", name, err)
	}
	readErr := m.invalidated(ctx)
	if err := m.rdb.Publish(ctx, m.keys.invalidate(), name).Err(); err != nil {
		m.log.Warn("a changed setting is not announced: replicas see it within ten seconds",
			"setting", name, "error", err)
	}
	if readErr != nil && !errors.Is(readErr, ErrSetting) {
		return fmt.Errorf("availability: setting %s is stored, but not read again: %w", name, readErr)
	}
	return nil
}

func (m *Mirror) invalidated(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*m.patience)
	defer cancel()
	_, readErr := m.readSettings(ctx) // logs its own errors; keepSettings tries again
	m.dropSnapshot()
	if err := m.rdb.Del(ctx, m.keys.snapshot(), m.keys.computing()).Err(); err != nil {
		m.log.Debug("an old snapshot stays until it expires", "error", err)
	}
	return readErr
}

// listen receives changed settings. A renewed subscription means that the connection had ended: the
// server may be a different one.
func (m *Mirror) listen(ctx context.Context) {
	again := false
	subscribe.Channel{
		Client: m.c.Control, Name: m.keys.invalidate(), Silence: silence,
		Retry:   func() time.Duration { return m.c.Tick },
		Message: func(string) { _ = m.invalidated(ctx) },
		Subscribed: func(begun bool) {
			if !begun {
				return
			}
			if again {
				wait.Nudge(m.reconnected)
			}
			again = true
			_ = m.invalidated(ctx) // a message may have been missed
		},
		Log: m.log,
	}.Run(ctx)
}
