package availability

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
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

// applyOf limits the states per script, which blocks Redis for some milliseconds.
const applyOf = 500

// Modes of apply.lua.
const (
	newer   = "newer"
	heal    = "heal"
	compare = "compare"
)

// Kinds of drift.
const (
	Behind  = "behind"
	Differs = "differs" // at the same version
	Ahead   = "ahead"   // the source lost commits
	Unknown = "unknown" // the source has no such mitra
	Base    = "base"    // the source's state did not match its base tables
)

const (
	// not drift: the source stores heartbeats that Redis could not accept
	heard = "heard"
	// set offline for silence, although Redis received a heartbeat after that decision
	alive = "alive"
)

type unequal struct {
	Versioned // Redis' version if Ahead, else the source's
	kind      string
}

// Later times are larger strings.
const isoMS = "2006-01-02T15:04:05.000Z"

func formatSeen(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(isoMS)
}

func parseSeen(text string) time.Time {
	at, err := time.Parse(isoMS, text)
	if err != nil || len(text) != len(isoMS) {
		return time.Time{}
	}
	return at
}

// apply returns the states that differed. Readers see up to applyOf change at once.
func (m *Mirror) apply(ctx context.Context, mode string, states ...State) ([]unequal, error) {
	if err := m.clocks.check(); err != nil && len(states) > 0 {
		return nil, err
	}
	var found []unequal
	for len(states) > 0 {
		n := min(len(states), applyOf)
		args := make([]any, 0, 1+6*n)
		args = append(args, mode)
		for _, s := range states[:n] {
			at := s.Seen
			if !s.Online {
				at = s.Judged
			}
			args = append(args, s.ID, s.Version, bit(s.Online), bit(s.Active), s.Sessions,
				formatSeen(m.clocks.toMirror(at)))
		}
		states = states[n:]
		out, err := applyScript.Run(ctx, m.rdb, m.keys.all(), args...).StringSlice()
		if err != nil {
			return found, fmt.Errorf("availability: apply %d states: %w", n, err)
		}
		bad := map[string][]string{}
		for ; len(out) >= 3; out = out[3:] {
			if key, is := badKinds[out[2]]; is {
				bad[key] = append(bad[key], out[0])
				continue
			}
			version, _ := strconv.ParseInt(out[1], 10, 64)
			found = append(found, unequal{Versioned{out[0], version}, out[2]})
		}
		for key, mitras := range bad {
			m.badKey(key, rebuilt, len(mitras), "no value of the mirror", mitras...)
		}
	}
	return found, nil
}

// overbid raises versions above Redis' for mitras whose version the source lost or issued twice. It
// first asks the source again, which may have taken the version meanwhile. It returns the new
// states.
func (r *reconciliation) overbid(ctx context.Context, ahead map[string]unequal) ([]State, error) {
	if len(ahead) == 0 {
		return nil, nil
	}
	present, err := r.source.States(ctx, slices.Collect(maps.Keys(ahead)))
	if err != nil {
		return nil, fmt.Errorf("availability: read states: %w", err)
	}
	var lost []Versioned
	for _, s := range present {
		if u := ahead[s.ID]; s.Version < u.Version || s.Version == u.Version && u.kind == Differs {
			lost = append(lost, u.Versioned)
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	states, err := r.source.Outbid(ctx, lost)
	if err != nil {
		return nil, fmt.Errorf("availability: outbid: %w", err)
	}
	for _, one := range lost {
		r.drifted(Ahead, one.ID)
	}
	return states, nil
}

// revive is for heartbeats acknowledged after the judgement.
func (m *Mirror) revive(ctx context.Context, ids []string) ([]State, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	states, err := m.source.Revive(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("availability: set online again: %w", err)
	}
	m.log.Warn("mitras are online again: a heartbeat was acknowledged after they were judged silent",
		"count", len(ids), "mitras", ids[:min(len(ids), driftNamed)])
	return states, nil
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// applied is best effort: the change is committed whatever happens here, and the feed delivers what
// did not arrive. It survives ctx, and takes a second at most.
func (m *Mirror) applied(ctx context.Context, states ...State) {
	failpoint.Hit(failpoint.Applying)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.patience)
	defer cancel()
	r := m.reconciliation(newer, func(ctx context.Context, f func(context.Context) error) error {
		return m.redis.do(context.Background(), func() error { return f(ctx) })
	})
	found, err := r.bring(ctx, newer, states)
	if err == nil {
		if _, err = r.settle(ctx, found); err != nil {
			wait.Nudge(m.reconnected) // Redis' state from lost commits hides this one: compare everything
		}
	}
	m.applying.Note(err)
	if err != nil {
		m.metrics.applyFailed.Inc()
	}
}
