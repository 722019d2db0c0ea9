package janitor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// mistaken is a sweep that panics.
type mistaken struct{}

func (mistaken) Name() string                     { return "mistaken" }
func (mistaken) Interval() time.Duration          { return time.Hour }
func (mistaken) Run(context.Context, *Pass) error { panic("a mistake") }

// A leader whose sweep is gone must not keep the lease and go on without it.
func TestASweepThatPanicsEndsRunWithIt(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		f := setup(t, w)
		r := f.replica("r1", func(c *Config) { c.Sweeps = []Sweeper{mistaken{}} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ended := make(chan any, 1)
		go func() {
			defer func() { ended <- recover() }()
			_ = r.Run(ctx)
		}()
		require.Contains(t, fmt.Sprint(<-ended), "a mistake")
		require.NoError(t, ctx.Err(), "it ended by itself")
		require.Zero(t, f.Exists(t.Context(), f.Lease()).Val())
	})
}
