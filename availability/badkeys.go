package availability

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcomes for a key with something that the mirror did not store.
const (
	rebuilt = "rebuilt" // by the source, or by the replica that computes, seeds or sweeps
	kept    = "kept"    // it may be somebody else's
)

// heartbeatAhead is how far ahead a heartbeat's clock may have been, as in heard.lua.
const heartbeatAhead = 24 * time.Hour

// computingAtMost exceeds any computation's mark.
const computingAtMost = time.Minute

const (
	capacityKeys  = "mitra:capacity"
	heartbeatKeys = "mitra:heartbeat"
)

var badKinds = map[string]string{"bad_capacity": capacityKeys, "bad_heartbeat": heartbeatKeys}

// sharedKeys are those of fit.lua, without prefix.
var sharedKeys = []string{
	"mitras:online", "mitras:deactivated", "mitras:version", "mitras:seeded", "mitras:fed",
	"availability:snapshot", "availability:snapshot:computing", "availability:offline",
}

// badKey counts keys that held something else, and logs what that was and where.
func (m *Mirror) badKey(kind, outcome string, count int, was any, where ...string) {
	m.metrics.badKeys.WithLabelValues(kind, outcome).Add(float64(count))
	m.log.Warn("keys of the mirror held something else: rebuilt, or kept as they may be somebody's",
		"key", kind, "outcome", outcome, "count", count, "was", was, "where", where[:min(len(where), driftNamed)])
}

// tooLong counts members that a script removed, as the mirror cannot have written them.
func (m *Mirror) tooLong(key string, removed int) {
	m.badKey(strings.TrimPrefix(key, m.keys.Prefix), rebuilt, removed, "members, as they are too long", key)
}

var errKept = errors.New("availability: a key is of another type and may be somebody's: " +
	"move it, or choose another prefix")

// fit checks the shared keys, because one of the wrong type would fail every script. The mirror's
// are made again. The error lists the others, about which somebody must decide.
func (f *feed) fit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	keys := f.keys.all(f.keys.fed(), f.keys.snapshot(), f.keys.computing(), f.keys.noted())
	out, err := fitScript.Run(ctx, f.rdb, keys, bit(f.sawWhole), computingAtMost.Milliseconds()).StringSlice()
	if err != nil {
		return fmt.Errorf("availability: look at the types of keys: %w", err)
	}
	var left []string
	for ; len(out) >= 3; out = out[3:] {
		key, was, outcome := out[0], out[1], out[2]
		is := key + " (" + was + ")"
		if outcome == kept {
			left = append(left, is)
		}
		if outcome == rebuilt || !slices.Contains(f.left, is) {
			f.badKey(strings.TrimPrefix(key, f.keys.Prefix), outcome, 1, was, key)
		}
	}
	f.left = left
	if len(left) > 0 {
		f.note(func(h *Health) { h.Whole, h.LookedAt = false, time.Now() })
		return fmt.Errorf("%w: %s", errKept, strings.Join(left, ", "))
	}
	return nil
}
