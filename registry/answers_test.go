package registry_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestAnAnswerToALookupThatMakesNoSenseIsAFailure(t *testing.T) {
	inBubble(t, func(w *bubble) {
		g := &redistest.Garbled{}
		r := w.start("r1", func(c *registry.Config) {
			c.Client.(*redis.Client).AddHook(redistest.Intercept(g.Meets))
		})
		r.register("imei")
		for i, change := range redistest.Garblings(0) {
			g.Set(change)
			_, err := r.Lookup(w.Context(), "imei")
			require.ErrorContains(w, err, "unexpected answer")
			require.InDelta(w, i+1, r.failures("lookup"), 0)
		}
	})
}
