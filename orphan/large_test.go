package orphan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// What is large is not compared whole, and yet what was made anew is another thing.
func TestWhatIsLargeAndMadeAnewSurvives(t *testing.T) {
	t.Parallel()
	fill := func(r *rig, key, kind, what string) {
		for i := range 600 {
			one := fmt.Sprint(what, i)
			switch kind {
			case "SADD", "RPUSH":
				r.do(kind, key, one)
			case "HSET":
				r.do(kind, key, one, one)
			case "ZADD":
				r.do(kind, key, i, one)
			case "XADD":
				r.do(kind, key, "*", one, one)
			}
		}
		if kind == "SET" {
			r.do("SET", key, strings.Repeat("x", 50_000)+what+strings.Repeat("x", 50_000))
		}
	}
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		for _, kind := range []string{"SADD", "RPUSH", "HSET", "ZADD", "XADD", "SET"} {
			t.Run(kind, func(t *testing.T) {
				p := w.Prefix + kind + ":"
				r := newRig(t, w.Options, p, nil, session(p))
				fill(r, p+"session:a", kind, "old")
				fill(r, p+"session:b", kind, "old")
				r.sweep("sessions")
				r.pass("sessions", time.Minute)
				r.do("DEL", p+"session:a")
				fill(r, p+"session:a", kind, "new")
				result := r.sweep("sessions")
				require.True(t, r.exists(p+"session:a"))
				require.Equal(t, 1, result.Removed)
			})
		}
	})
}
