package chaos

import (
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// The faults of these rows are Redis' own: it stands still, is slow, is down, forgets, is full, evicts, refuses, or its clock
// jumps. They are met by the whole fleet at once.
var redisRows = slices.Concat(stallRows, restartRows, lossRows, memoryRows, refusalRows, leaseRows)

// silent are the devices that traffic leaves alone: where they are is certain while things break.
func (w *world) silent() map[string]string {
	live := w.devices.live()
	silent := make(map[string]string)
	for i := 0; i < w.devices.Len(); i += 2 {
		if id := live[w.devices.IMEI(i)]; id != "" {
			silent[w.devices.IMEI(i)] = id
		}
	}
	return silent
}

// routable tells whether a look-up would find each of these devices where it is, at an instance that lives.
func (w *world) routable(where map[string]string) bool {
	imeis := slices.Collect(maps.Keys(where))
	got, err := w.HMGet(w.t.Context(), w.Registry(), imeis...).Result()
	if err != nil {
		return false
	}
	for i, imei := range imeis {
		if got[i] != where[imei] {
			return false
		}
	}
	return w.beating()
}

// beating tells whether every running replica has a heartbeat.
func (w *world) beating() bool {
	var keys []string
	for _, r := range w.fleet() {
		keys = append(keys, w.Heartbeat(r.id))
	}
	return w.Exists(w.t.Context(), keys...).Val() == int64(len(keys))
}

// heals waits until every silent device is routable again, and asserts that this is one heartbeat interval after since (L2).
func (w *world) heals(since time.Time) {
	w.t.Helper()
	silent := w.silent()
	eventually(w.t, "every silent device is routable again", func() bool { return w.routable(silent) })
	w.within("all routable again", time.Since(since), interval)
}

// nothingWent is what the right column means by 0 deletes.
func nothingWent(w *world, v *judge.Verdict) {
	w.t.Helper()
	require.Zero(w.t, v.Evicted(""), "somebody who lives was evicted")
}

// doubted waits until the witness has started anew for a reason.
func (w *world) doubted(reason string) {
	w.t.Helper()
	eventually(w.t, "the witness doubts: "+reason, func() bool {
		return w.HGet(w.t.Context(), w.Witness(), "reason").Val() == reason
	})
}

// config sets something on the server.
func (w *world) config(name, value string) {
	w.t.Helper()
	require.NoError(w.t, w.ConfigSet(w.t.Context(), name, value).Err())
}

// another is a client of somebody else, who waits as long as it takes and asks for everything once.
func (w *world) another() *redis.Client {
	o := w.server.Options()
	o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = patience, -1, true
	c := redis.NewClient(o)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}
