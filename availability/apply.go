package availability

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

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
