package availability

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Each writer commits in the source first, then updates Redis, best effort. After any error that is
// not named, the outcome is unknown.

// Online sets a mitra online, and is a sign of life if it was. ErrNotFound, ErrInactive.
func (m *Mirror) Online(ctx context.Context, id string) (State, error) {
	return m.wrote(ctx)(m.source.SetOnline(ctx, id, true))
}

// Offline sets a mitra offline. ErrNotFound.
func (m *Mirror) Offline(ctx context.Context, id string) (State, error) {
	return m.wrote(ctx)(m.source.SetOnline(ctx, id, false))
}

// Activate lets a mitra work. ErrNotFound.
func (m *Mirror) Activate(ctx context.Context, id string) (State, error) {
	return m.wrote(ctx)(m.source.SetActive(ctx, id, true))
}

// Deactivate revokes a mitra's sign-in sessions and refuses its heartbeats. ErrNotFound.
func (m *Mirror) Deactivate(ctx context.Context, id string) (State, error) {
	return m.wrote(ctx)(m.source.SetActive(ctx, id, false))
}

func (m *Mirror) wrote(ctx context.Context) func(State, error) (State, error) {
	return func(s State, err error) (State, error) {
		if err == nil {
			m.applied(ctx, s)
		}
		return s, err
	}
}

// Accept gives a searching session to a mitra that has room. The source decides, so no mitra ever
// has more sessions than allowed. ErrNotFound, ErrTaken, ErrFull, ErrInactive.
func (m *Mirror) Accept(ctx context.Context, session, mitra string) (Session, error) {
	settings, err := m.Settings(ctx)
	if err != nil {
		return Session{}, err
	}
	return m.moved(ctx)(m.source.Accept(ctx, session, mitra, settings.MaxCustomers))
}

// Reroute moves a session to another mitra that has room, in one step. ErrNotFound, ErrTaken,
// ErrFull, ErrInactive.
func (m *Mirror) Reroute(ctx context.Context, session, mitra string) (Session, error) {
	settings, err := m.Settings(ctx)
	if err != nil {
		return Session{}, err
	}
	return m.moved(ctx)(m.source.Reroute(ctx, session, mitra, settings.MaxCustomers))
}

// Extend makes a session wait while its customer pays for more time, or run again once paid. It
// keeps its place, and succeeds if already in that state. ErrNotFound, ErrTaken.
func (m *Mirror) Extend(ctx context.Context, session string, paid bool) (Session, error) {
	return m.moved(ctx)(m.source.Extend(ctx, session, paid))
}

// End ends a session with one of the source's statuses, such as completed, cancelled or expired.
// ErrNotFound, ErrTaken, ErrStatus.
func (m *Mirror) End(ctx context.Context, session, status string) (Session, error) {
	return m.moved(ctx)(m.source.End(ctx, session, status))
}

func (m *Mirror) moved(ctx context.Context) func(Session, []State, error) (Session, error) {
	return func(s Session, states []State, err error) (Session, error) {
		if err == nil && len(states) > 0 {
			m.applied(ctx, states...)
		}
		return s, err
	}
}

// A Beat is the outcome of a heartbeat.
type Beat string

// Outcomes of a heartbeat.
const (
	BeatKept Beat = "kept"
	// kept, but the mirror is not whole: Status asks the source whether the mitra is online
	BeatUnseeded Beat = "unseeded"
	// the app has to go online again
	BeatNotOnline   Beat = "not_online"
	BeatDeactivated Beat = "deactivated"
)

// Heartbeat costs one round trip to Redis and none to the source, except that nobody is refused by
// a Redis that may have missed commits: then the source decides, if it answers. After an error, it
// is unknown whether it was kept.
func (m *Mirror) Heartbeat(ctx context.Context, id string) (Beat, error) {
	id = strings.ToLower(id)
	var beat string
	err := m.redis.do(ctx, func() (err error) {
		ctx, cancel := context.WithTimeout(ctx, m.patience)
		defer cancel()
		minute := time.Now().UTC().Truncate(time.Minute)
		beat, err = heartbeatScript.Run(ctx, m.rdb, []string{m.keys.heartbeat(id)},
			id, minute.Unix(), minute.Format("2006-01-02T15:04:")).Text()
		return err
	})
	if err != nil {
		m.metrics.heartbeats.WithLabelValues("error").Inc()
		return "", fmt.Errorf("availability: heartbeat: %w", err)
	}
	switch Beat(beat) {
	case BeatKept:
		m.mu.Lock()
		m.kept = time.Now()
		m.mu.Unlock()
	case BeatNotOnline, BeatDeactivated:
		if m.behind() > 0 {
			_ = m.askBehind(ctx, func(ctx context.Context) error { // otherwise Redis' answer stands
				now, err := m.HeartbeatAtSource(ctx, id)
				if err == nil {
					beat = string(now)
				}
				return err
			})
		}
	}
	m.metrics.heartbeats.WithLabelValues(beat).Inc()
	return Beat(beat), nil
}

// HeartbeatAtSource takes a sign of life when Redis cannot: after an error of Heartbeat, or
// BeatUnseeded. The source dates it, and its feed delivers it within a second. ErrNotFound; after
// any other error, it is unknown whether it was kept.
func (m *Mirror) HeartbeatAtSource(ctx context.Context, id string) (Beat, error) {
	_, err := m.source.Beat(ctx, strings.ToLower(id))
	switch {
	case err == nil:
		return BeatKept, nil
	case errors.Is(err, ErrInactive):
		return BeatDeactivated, nil
	case errors.Is(err, ErrNotOnline):
		return BeatNotOnline, nil
	}
	return "", fmt.Errorf("availability: heartbeat: %w", err)
}
