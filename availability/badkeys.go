package availability

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// sharedKeys are those of fit.lua, in its order, without prefix.
var sharedKeys = []string{
	"mitras:online", "mitras:deactivated", "mitras:version", "mitras:seeded", "mitras:fed",
	"availability:snapshot", "availability:snapshot:computing", "availability:offline",
}

func (m *Mirror) noteBad(bad map[string][]string) {
	for key, mitras := range bad {
		m.metrics.badKeys.WithLabelValues(key, rebuilt).Add(float64(len(mitras)))
		m.log.Warn("keys of mitras held no value of the mirror, and are written anew from the source",
			"key", key, "count", len(mitras), "mitras", mitras[:min(len(mitras), driftNamed)])
	}
}

func (m *Mirror) keptKey(kind, key, is string) {
	m.metrics.badKeys.WithLabelValues(kind, kept).Inc()
	m.log.Warn("a key of another type is kept: it may be somebody's", "key", key, "is", is)
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
		n, err := strconv.Atoi(out[0])
		if err != nil || n < 1 || n > len(sharedKeys) {
			return fmt.Errorf("availability: look at the types of keys: unexpected answer %v", out)
		}
		key, was, outcome := sharedKeys[n-1], out[1], out[2]
		if outcome == rebuilt {
			f.metrics.badKeys.WithLabelValues(key, rebuilt).Inc()
			f.log.Warn("a key of the mirror held something else, and is made again", "key", keys[n-1], "was", was)
			continue
		}
		is := keys[n-1] + " (" + was + ")"
		if !slices.Contains(f.left, is) {
			f.keptKey(key, keys[n-1], was)
		}
		left = append(left, is)
	}
	f.left = left
	if len(left) > 0 {
		f.note(func(h *Health) { h.Whole, h.LookedAt = false, time.Now() })
		return fmt.Errorf("%w: %s", errKept, strings.Join(left, ", "))
	}
	return nil
}
