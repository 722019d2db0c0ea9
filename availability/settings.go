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
	// settingsFresh is for how long settings are good that nobody announced a change of.
	settingsFresh = 10 * time.Second
	// settingsAgain is for how long nobody asks for them again who has none, after a failure.
	settingsAgain = time.Second
	// silence is after how long without a message the subscription is tried.
	silence = 5 * time.Second
)

// Settings returns what an administrator may change: as last read, at most ten seconds ago while
// the source answers. The error is of a source that has never answered.
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

// firstSettings asks the source, as reads do that fall back. One call asks for all who wait, and a
// failure is the answer for a second: a source that comes back is not met by everybody.
func (m *Mirror) firstSettings(ctx context.Context) (s Settings, err error) {
	m.mu.Lock()
	failed, at := m.settingsFailed, m.settingsFailedAt
	m.mu.Unlock()
	if failed != nil && time.Since(at) < settingsAgain {
		return s, failed
	}
	err = m.fallback(ctx, func() (err error) {
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

// readSettings asks the source. With ErrSetting it returns settings all the same.
func (m *Mirror) readSettings(ctx context.Context) (Settings, error) {
	read := m.settingsRead.Add(1)
	s, err := m.source.Settings(ctx)
	if err != nil {
		err = fmt.Errorf("availability: settings: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	newest := read > m.settingsOf // else one that began later has newer ones, and has said so
	if newest && ctx.Err() == nil {
		m.noteSettings(err)
	}
	if err != nil && !errors.Is(err, ErrSetting) {
		return Settings{}, err
	}
	if newest {
		m.settingsOf = read
		m.settings.Store(&s)
	}
	return s, err
}

// keepSettings reads them again and again, until ctx ends. A source whose settings are locked keeps
// nobody else waiting.
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

// noteSettings says what is wrong with the newest settings. Its caller holds mu.
func (m *Mirror) noteSettings(err error) {
	m.health.SettingsError = textOf(err)
	if err != nil && !errors.Is(err, ErrSetting) {
		m.settling.Note(err)
		return
	}
	m.settling.Note(nil)
	m.sensible.Note(err)
}

// textOf is what an error says; "" if there is none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// PutSetting changes one of the four settings, by its name in app_config, and announces it to every
// replica. An announcement that is lost delays the change by ten seconds at most.
func (m *Mirror) PutSetting(ctx context.Context, name string, value any) error {
	if err := m.source.PutSetting(ctx, name, value); err != nil {
		return fmt.Errorf("availability: setting %s: %w", name, err)
	}
	m.invalidated(ctx)
	if err := m.rdb.Publish(ctx, m.keys.invalidate(), name).Err(); err != nil {
		m.log.Warn("a changed setting is not announced: replicas see it within ten seconds",
			"setting", name, "error", err)
	}
	return nil
}

// invalidated reads the settings, and drops all that was made of older ones.
func (m *Mirror) invalidated(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*m.patience)
	defer cancel()
	_, _ = m.readSettings(ctx) // says so itself; the feed tries again
	m.dropSnapshot()
	// Whoever computes one at this moment finds its token gone, and stores nothing.
	if err := m.rdb.Del(ctx, m.keys.snapshot(), m.keys.computing()).Err(); err != nil {
		m.log.Debug("an old snapshot stays until it expires", "error", err)
	}
}

// listen hears of changed settings. A subscription that begins again says that the connection to
// Redis had ended: the server may be another.
func (m *Mirror) listen(ctx context.Context) {
	again := false
	subscribe.Channel{
		Client: m.c.Control, Name: m.keys.invalidate(), Silence: silence,
		Retry: func() time.Duration { return m.c.Tick },
		Message: func(name string) {
			if name == snapshotOutdated { // the publisher has deleted it
				m.dropSnapshot()
			} else {
				m.invalidated(ctx)
			}
		},
		Subscribed: func(begun bool) {
			if !begun {
				return
			}
			if again {
				nudge(m.reconnected)
			}
			again = true
			m.invalidated(ctx) // a message may have been missed
		},
		Log: m.log,
	}.Run(ctx)
}
