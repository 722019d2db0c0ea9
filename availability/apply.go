package availability

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// applyOf is how many states one script takes at most: it holds Redis for some milliseconds.
const applyOf = 500

// The modes of apply.lua.
const (
	newer   = "newer"
	heal    = "heal"
	compare = "compare"
)

// The kinds of drift.
const (
	Behind  = "behind"  // Redis had an older version
	Differs = "differs" // Redis had something else at the same version
	Ahead   = "ahead"   // Redis had a newer version: the source lost commits
	Unknown = "unknown" // Redis had a mitra that the source does not know
	Base    = "base"    // the source's state was not what its base tables say
)

const (
	// heard does not count as drift: the source stores heartbeats that Redis could not take.
	heard = "heard"
	// alive is a mitra whom the source set offline for silence, although Redis received a heartbeat
	// after that decision.
	alive = "alive"
)

// unequal is a mitra whose state in Redis was not equal.
type unequal struct {
	id      string
	version int64 // of Redis where the kind is Ahead, else of the source
	kind    string
}

// isoMS is the form of a heartbeat. Of two, the later is the larger string.
const isoMS = "2006-01-02T15:04:05.000Z"

func formatSeen(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(isoMS)
}

// parseSeen is the time of a heartbeat; zero if it is none.
func parseSeen(text string) time.Time {
	at, err := time.Parse(isoMS, text)
	if err != nil || len(text) != len(isoMS) {
		return time.Time{}
	}
	return at
}

// apply brings states into Redis in one of the modes, and returns which were not equal. States that
// one script takes, up to applyOf, are seen at once by readers.
func (m *Mirror) apply(ctx context.Context, mode string, states ...State) ([]unequal, error) {
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
			found = append(found, unequal{out[0], version, out[2]})
		}
		m.noteBad(bad)
	}
	return found, nil
}

// deliver applies states that were committed, and settles what contradicts them: a Redis that has
// versions of commits that were lost is outbid, and a mitra who is alive is online again. It
// returns how many states Redis did not have.
func (m *Mirror) deliver(ctx context.Context, states ...State) (brought int, err error) {
	found, err := m.apply(ctx, newer, states...)
	if err != nil {
		return 0, err
	}
	return m.settleFound(ctx, found)
}

// settleFound settles what apply has found in mode newer.
func (m *Mirror) settleFound(ctx context.Context, found []unequal) (brought int, err error) {
	var ahead []unequal
	var living []string
	for _, u := range found {
		switch u.kind {
		case Ahead, Differs:
			ahead = append(ahead, u)
		case alive:
			living = append(living, u.id)
		case Behind:
			brought++
		}
	}
	states, lost, err := m.overbid(ctx, ahead)
	if len(lost) > 0 {
		m.metrics.drift.WithLabelValues(Ahead).Add(float64(len(lost)))
		m.log.Warn("drift healed", "kind", Ahead, "count", len(lost), "mitras", lost[:min(len(lost), driftNamed)])
	}
	revived, reviveErr := m.revive(ctx, living)
	if err = errors.Join(err, reviveErr); err != nil {
		return brought, err
	}
	_, err = m.apply(ctx, newer, append(states, revived...)...)
	return brought, err
}

// overbid gives those versions above Redis' whose versions the source has lost, or gave a second
// time: then Redis has something else at the same one. The source is asked once more: it may have
// taken a version, and a writer brought it here, since it was read. It returns their states, and
// who they are.
func (m *Mirror) overbid(ctx context.Context, ahead []unequal) (states []State, lost []string, err error) {
	if len(ahead) == 0 {
		return nil, nil, nil
	}
	ids := make([]string, len(ahead))
	for i, u := range ahead {
		ids[i] = u.id
	}
	if states, err = m.source.States(ctx, ids); err != nil {
		return nil, nil, fmt.Errorf("availability: read states: %w", err)
	}
	present := map[string]int64{}
	for _, s := range states {
		present[s.ID] = s.Version
	}
	var versions []int64
	for _, u := range ahead {
		v, known := present[u.id]
		if known && (v < u.version || v == u.version && u.kind == Differs) {
			lost, versions = append(lost, u.id), append(versions, u.version)
		}
	}
	if len(lost) == 0 {
		return nil, nil, nil
	}
	if states, err = m.source.Outbid(ctx, lost, versions); err != nil {
		return nil, nil, fmt.Errorf("availability: outbid: %w", err)
	}
	return states, lost, nil
}

// revive sets mitras online again whose heartbeat was acknowledged after the source had judged them
// silent, and returns their states.
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

// applied brings what a writer has committed into Redis, best effort: the change stands, whatever
// happens here, and the feed brings what did not arrive. It does not end with ctx, and takes a
// second at most.
func (m *Mirror) applied(ctx context.Context, states ...State) {
	failpoint.Hit(failpoint.Applying)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), m.patience)
	defer cancel()
	var found []unequal
	err := m.redis.do(context.Background(), func() (err error) {
		found, err = m.apply(ctx, newer, states...)
		return err
	})
	if err == nil {
		if _, err = m.settleFound(ctx, found); err != nil {
			nudge(m.reconnected) // what Redis has of lost commits hides this one: all is compared
		}
	}
	m.applying.Note(err)
	if err != nil {
		m.metrics.applyFailed.Inc()
	}
}
