package availability

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// mostFallSilent has more mitras than usual fall silent at once: that is rather a fault of the
// service than the end of most. Nobody goes offline.
func mostFallSilent(w *world) {
	many := w.ids[crowd:]
	each := func(f func(id string)) {
		var wait sync.WaitGroup
		for _, id := range many {
			wait.Go(func() { f(id) })
		}
		wait.Wait()
	}
	rounds := 0
	harness.Eventually(w.T, "they ping together, and fall silent together", func() bool {
		began := time.Now()
		each(func(id string) {
			if w.alive(w.Context(), id, "heartbeat") != http.StatusNoContent {
				w.alive(w.Context(), id, "online")
			}
		})
		rounds++
		return rounds >= 5 && time.Since(began) < time.Second // the pause between two pings, as apps are told
	})
	harness.Eventually(w.T, "a replica says that it holds", func() bool {
		n := w.count("SELECT count(*) FROM mitra_availability WHERE is_online AND mitra_id::text = ANY ($1)", many)
		require.Equal(w, n, len(many), "some went offline")
		held, err := w.rdb.HExists(w.Context(), layout.Prefix+"availability:offline", "held_until").Result()
		return err == nil && held
	})
	each(func(id string) { w.offline(w.Context(), id) })                                   // they come back, and leave in good order
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
