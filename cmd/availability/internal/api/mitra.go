package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/availability"
)

// heartbeatsAtSource limits concurrent ones.
const heartbeatsAtSource = 8

// heartbeat costs one round trip to Redis. If Redis cannot accept it, or does not know whether the
// mitra is online, it asks the source.
func (a *API) heartbeat(c *call) error {
	beat, err := a.mirror.Heartbeat(c.Context(), c.caller.Subject)
	switch {
	case canceled(c.Context(), err):
		return err
	case err != nil:
		return a.heartbeatAtSource(c)
	case beat == availability.BeatUnseeded:
		return a.unseededHeartbeat(c)
	}
	return c.beat(beat)
}

func (c *call) beat(beat availability.Beat) error {
	switch beat {
	case availability.BeatDeactivated:
		return deactivated.because("an administrator has deactivated this mitra")
	case availability.BeatNotOnline:
		return notOnline.because("go online again")
	}
	return c.noContent()
}

// unseededHeartbeat answers a heartbeat that Redis kept without knowing the mitra: if it is emptied
// while the mitra is set offline, it knows neither. If the source cannot answer, the heartbeat
// counts as kept.
func (a *API) unseededHeartbeat(c *call) error {
	err := a.heartbeatAtSource(c)
	if err != nil && problemOf(err).kind == unavailable {
		return c.noContent()
	}
	return err
}

// heartbeatAtSource: this replica may be the only one that Redis does not answer, and others would
// set the mitra offline. It asks only the source, because a Redis that accepts no writes may return
// outdated states.
func (a *API) heartbeatAtSource(c *call) error {
	waiting, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if err := a.atSource.Acquire(waiting, 1); err != nil {
		return fmt.Errorf("api: too many heartbeats are on their way to the source: %w", err)
	}
	defer a.atSource.Release(1)
	beat, err := a.mirror.HeartbeatAtSource(c.Context(), c.caller.Subject)
	if err != nil {
		return err
	}
	if beat == availability.BeatKept {
		c.from(availability.FromPostgres, 0)
	}
	return c.beat(beat)
}

func (a *API) online(c *call) error {
	_, err := a.mirror.Online(c.Context(), c.caller.Subject)
	if errors.Is(err, availability.ErrInactive) {
		return deactivated.because("an administrator has deactivated this mitra")
	}
	if err != nil {
		return err
	}
	return c.noContent()
}

func (a *API) offline(c *call) error {
	if _, err := a.mirror.Offline(c.Context(), c.caller.Subject); err != nil {
		return err
	}
	return c.noContent()
}

type mitraStatus struct {
	ID            string     `json:"id"`
	Online        bool       `json:"is_online"`
	Active        bool       `json:"is_active"`
	Sessions      int        `json:"active_session_count"`
	LastHeartbeat *time.Time `json:"last_heartbeat_at"`
	// Reachable: online, active, and not silent for too long.
	Reachable   bool `json:"reachable"`
	PingSeconds int  `json:"heartbeat_cadence_seconds"`
	// nil if Postgres cannot be asked now
	*changes
}

func (a *API) status(c *call) error {
	settings, err := a.mirror.Settings(c.Context())
	if err != nil {
		return err
	}
	s, err := a.mirror.Status(c.Context(), c.caller.Subject)
	if err != nil {
		return err
	}
	v := s.Value
	c.from(s.From, s.Age)
	return c.answer(mitraStatus{
		ID: c.caller.Subject, Online: v.Online, Active: v.Active, Sessions: v.Sessions,
		LastHeartbeat: moment(v.Heartbeat), Reachable: v.Online && v.Active && v.Fresh,
		PingSeconds: int(settings.PingInterval / time.Second),
		changes:     a.changes.of(c.Context(), c.caller.Subject),
	})
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
