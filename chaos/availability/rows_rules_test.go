package availability

import (
	"context"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// mostFallSilent has more mitras than usual fall silent at once: that is rather a fault of the
// service than the end of most. Nobody goes offline.
func mostFallSilent(w *world) {
	many := w.ids[crowd:]
	for range 5 { // until all are online together
		for _, id := range many {
			if w.alive(w.Context(), id, "heartbeat") != http.StatusNoContent {
				w.alive(w.Context(), id, "online")
			}
		}
		harness.Lasting(stale / 6)
	}
	harness.Eventually(w.T, "a replica says that it holds", func() bool {
		n := w.count("SELECT count(*) FROM mitra_availability WHERE is_online AND mitra_id::text = ANY ($1)", many)
		require.GreaterOrEqual(w, n, len(many)-1)
		held, err := w.rdb.HExists(w.Context(), layout.Prefix+"availability:offline", "held_until").Result()
		return err == nil && held
	})
	for _, id := range many { // they come back, and leave in good order
		w.alive(w.Context(), id, "heartbeat")
		w.offline(w.Context(), id)
	}
	require.NoError(w, w.rdb.Del(w.Context(), layout.Prefix+"availability:offline").Err()) // it is a minute
}

// pingNotRequired turns silence off as a reason, and on again. Changes are seen within a second or
// so, or ten if their announcement is lost.
func pingNotRequired(w *world) {
	w.setting("require_ping", "false")
	var flips int
	harness.Eventually(w.T, "nobody goes offline any more", func() bool {
		before := w.flips()
		harness.Lasting(2 * time.Second)
		flips = w.flips()
		return flips == before
	})
	lasting()
	require.Equal(w, flips, w.flips())
	w.setting("require_ping", "true")
}

func (w *world) setting(key, value string) {
	w.Helper()
	w.exec("UPDATE app_config SET value = $2::jsonb WHERE key = $1", key, value)
	require.NoError(w, w.rdb.Publish(context.WithoutCancel(w.Context()), "config:invalidate", key).Err())
}
