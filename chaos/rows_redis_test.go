package chaos

import (
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// The faults of these rows are Redis' own: it stands still, is slow, is down, forgets, is full,
// evicts, refuses, or its clock jumps. They are met by the whole fleet at once.
var redisRows = slices.Concat(stallRows, restartRows, lossRows, memoryRows, refusalRows, leaseRows)

// silent are the devices that traffic leaves alone: where they are is certain while things break.
func (w *environment) silent() map[string]string {
	live := w.Fleet.Live()
	silent := make(map[string]string)
	for i := 0; i < w.Fleet.Len(); i += 2 {
		if id := live[w.Fleet.IMEI(i)]; id != "" {
			silent[w.Fleet.IMEI(i)] = id
		}
	}
	return silent
}

// routable tells whether a look-up would find each of these devices where it is, at an instance
// that lives.
func (w *environment) routable(where map[string]string) bool {
	imeis := slices.Collect(maps.Keys(where))
	got, err := w.HMGet(w.T.Context(), w.Registry(), imeis...).Result()
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
func (w *environment) beating() bool {
	var keys []string
	for _, r := range w.Replicas() {
		keys = append(keys, w.Heartbeat(r.ID))
	}
	return w.Exists(w.T.Context(), keys...).Val() == int64(len(keys))
}

// heals waits until every silent device is routable again, and asserts that this is one heartbeat
// interval after since (L2).
func (w *environment) heals(since time.Time) {
	w.T.Helper()
	silent := w.silent()
	harness.Eventually(w.T, "every silent device is routable again", func() bool { return w.routable(silent) })
	w.within("all routable again", time.Since(since), harness.Interval)
}

// nothingWent is what the right column means by 0 deletes.
func nothingWent(w *environment, v *judge.Verdict) {
	w.T.Helper()
	require.Zero(w.T, v.Evicted(""), "somebody who lives was evicted")
}

// doubted waits until the witness has started anew for a reason.
func (w *environment) doubted(reason string) {
	w.T.Helper()
	harness.Eventually(w.T, "the witness doubts: "+reason, func() bool {
		return w.HGet(w.T.Context(), w.Witness(), "reason").Val() == reason
	})
}

// config sets something on the server.
func (w *environment) config(name, value string) {
	w.T.Helper()
	require.NoError(w.T, w.ConfigSet(w.T.Context(), name, value).Err())
}

// another is a client of somebody else, who waits as long as it takes and asks for everything once.
func (w *environment) another() *redis.Client {
	o := w.Server.Options()
	o.ReadTimeout, o.MaxRetries, o.ContextTimeoutEnabled = harness.Patience, -1, true
	c := redis.NewClient(o)
	w.T.Cleanup(func() { _ = c.Close() })
	return c
}
