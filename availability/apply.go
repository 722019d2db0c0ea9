package availability

import (
	"context"
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

// heard is no drift: heartbeats that Redis cannot take are kept by the source, without a version.
const heard = "heard"

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
			args = append(args, s.ID, s.Version, bit(s.Online), bit(s.Active), s.Sessions, formatSeen(s.Seen))
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
	err := m.redis.do(context.Background(), func() error {
		_, err := m.apply(ctx, newer, states...)
		return err
	})
	m.applying.Note(err)
	if err != nil {
		m.metrics.applyFailed.Inc()
	}
}
