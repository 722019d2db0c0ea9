package registry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestAnAnswerToAnOwnerThatMakesNoSenseIsAFailure(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		g := &redistest.Garbled{}
		r := w.start("r1", func(c *registry.Config) { c.Control.(*redis.Client).AddHook(g) })
		time.Sleep(registry.DefaultHeartbeatInterval)
		synctest.Wait()
		require.Zero(t, max(0, r.failures("heartbeat")))
		var status int
		g.Set(func(v []any) []any { status = len(v); return v })
		time.Sleep(registry.DefaultHeartbeatInterval)
		synctest.Wait()
		require.Equal(t, 7, status)
		for i, change := range redistest.Garblings(status) {
			if i == 2 { // nobody reads the answer "OK"
				continue
			}
			before := max(0, r.failures("heartbeat"))
			g.Set(change)
			time.Sleep(registry.DefaultHeartbeatInterval)
			synctest.Wait()
			require.Greater(t, r.failures("heartbeat"), before, "garbling %d", i)
			g.Set(func(v []any) []any { return v })
			time.Sleep(registry.DefaultHeartbeatInterval)
		}
		w.end(r)
	})
}

func TestAnAnswerToALookupThatMakesNoSenseIsAFailure(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		g := &redistest.Garbled{}
		r := w.start("r1", func(c *registry.Config) { c.Client.(*redis.Client).AddHook(g) })
		r.register(t, "imei")
		for i, change := range redistest.Garblings(0) {
			g.Set(change)
			_, err := r.Lookup(t.Context(), "imei")
			require.ErrorContains(t, err, "unexpected answer")
			require.InDelta(t, i+1, r.failures("lookup"), 0)
		}
		w.end(r)
	})
}
