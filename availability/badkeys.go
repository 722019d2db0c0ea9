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

// What happens to a key that holds something else than the mirror stores there.
const (
	rebuilt = "rebuilt" // the source, or whoever computes, seeds or sweeps, makes it again
	kept    = "kept"    // it may be somebody's
)

// heartbeatAhead is how far the clock that set a heartbeat can have been ahead, as in heard.lua.
const heartbeatAhead = 24 * time.Hour

// computingAtMost is longer than any computation marks that it is under way.
const computingAtMost = time.Minute

const (
	capacityKeys  = "mitra:capacity"
	heartbeatKeys = "mitra:heartbeat"
)

// badKinds are what apply.lua calls keys of mitras that it wrote anew.
var badKinds = map[string]string{"bad_capacity": capacityKeys, "bad_heartbeat": heartbeatKeys}

// sharedKeys are the keys of fit.lua, in its order, without the prefix.
var sharedKeys = []string{
	"mitras:online", "mitras:deactivated", "mitras:version", "mitras:condemned", "mitras:seeded",
	"mitras:seeding", "availability:snapshot", "availability:snapshot:computing", "availability:offline",
}

// noteBad reports keys of mitras that were written anew.
func (m *Mirror) noteBad(bad map[string][]string) {
	for key, mitras := range bad {
		m.metrics.badKeys.WithLabelValues(key, rebuilt).Add(float64(len(mitras)))
		m.log.Warn("keys of mitras held no value of the mirror, and are written anew from the source",
			"key", key, "count", len(mitras), "mitras", mitras[:min(len(mitras), driftNamed)])
	}
}

// keptKey reports a key that is left alone.
func (m *Mirror) keptKey(kind, key, is string) {
	m.metrics.badKeys.WithLabelValues(kind, kept).Inc()
	m.log.Warn("a key of another type is kept: it may be somebody's", "key", key, "is", is)
}

// errKept is of a key that has another type and may be somebody's.
var errKept = errors.New("availability: a key is of another type and may be somebody's: " +
	"move it, or choose another prefix")

// fit looks at the keys that all mitras share. One of another type would fail every script. Keys
// that were the mirror's are unlinked and made again. The error names the others: the mirror stays
// as it is until somebody has decided.
func (f *feed) fit(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	keys := f.keys.all(f.keys.seeding(), f.keys.snapshot(), f.keys.computing(), f.keys.breaker())
	out, err := fitScript.Run(ctx, f.rdb, keys, bit(f.sawWhole), computingAtMost.Milliseconds()).StringSlice()
	if err != nil {
		f.failed(err)
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
		f.looked(false)
		return fmt.Errorf("%w: %s", errKept, strings.Join(left, ", "))
	}
	return nil
}
