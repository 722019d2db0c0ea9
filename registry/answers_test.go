package registry_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestAnAnswerToALookupThatMakesNoSenseIsAFailure(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *bubble) {
		g := &redistest.Garbled{}
		r := w.start("r1", func(c *registry.Config) {
			c.Client.(*redis.Client).AddHook(redistest.Intercept(g.Meets))
		})
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
