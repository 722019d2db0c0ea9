package availability

import (
	"context"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/internal/subscribe"
)

const (
	// settingsFresh is for how long settings are good that nobody announced a change of.
	settingsFresh = 10 * time.Second
	// silence is after how long without a message the subscription is tried.
	silence = 5 * time.Second
)

// Settings returns what an administrator may change: as last read, at most ten seconds ago while
// the source answers. The error is of a source that has never answered.
func (m *Mirror) Settings(ctx context.Context) (Settings, error) {
	if s := m.settings.Load(); s != nil {
		return *s, nil
	}
	return m.readSettings(ctx)
}

func (m *Mirror) readSettings(ctx context.Context) (Settings, error) {
	read := m.settingsRead.Add(1)
	s, err := m.source.Settings(ctx)
	if ctx.Err() == nil {
		m.settling.Note(err)
	}
	if err != nil {
		return Settings{}, fmt.Errorf("availability: settings: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if read > m.settingsOf { // else one that began later has newer ones
		m.settingsOf = read
		m.settings.Store(&s)
	}
	return s, nil
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
		Retry:   func() time.Duration { return m.c.Tick },
		Message: func(string) { m.invalidated(ctx) },
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
