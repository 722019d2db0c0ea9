package redistest

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// Intercept is a hook that is called in place of each command, or pipeline, which send sends. The
// error that it returns is a single command's.
type Intercept func(ctx context.Context, cmds []redis.Cmder, send func() error) error

// DialHook changes nothing.
func (Intercept) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is for single commands.
func (i Intercept) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return i(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

// ProcessPipelineHook is for pipelines and transactions.
func (i Intercept) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return i(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

// Fail has an error answer each command, and returns it.
func Fail(cmds []redis.Cmder, err error) error {
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// Garbled changes scripts' answers, like a proxy or a server that is not Redis.
type Garbled struct {
	change atomic.Pointer[func([]any) []any]
}

// Set is for each list that a script returns from now on.
func (g *Garbled) Set(change func([]any) []any) { g.change.Store(&change) }

// Meets changes the answer: an [Intercept].
func (g *Garbled) Meets(_ context.Context, cmds []redis.Cmder, send func() error) error {
	err := send()
	for _, cmd := range cmds {
		if c, ok := cmd.(*redis.Cmd); ok && err == nil {
			if change, list := g.change.Load(), c.Val(); change != nil {
				if values, ok := list.([]any); ok {
					c.SetVal((*change)(slices.Clone(values)))
				}
			}
		}
	}
	return err
}

// Garblings change the length, and of each of n values the type.
func Garblings(n int) (all []func([]any) []any) {
	all = append(all,
		func(v []any) []any { return v[:len(v)-1] },
		func(v []any) []any { return append(v, "more") },
	)
	for i := range n {
		all = append(all, func(v []any) []any {
			if _, text := v[i].(string); text {
				v[i] = int64(7)
			} else {
				v[i] = "seven"
			}
			return v
		})
	}
	return all
}

// World is a server for a suite.
type World struct {
	Client  *redis.Client  // from Options; closed with the subtest
	Options *redis.Options // fresh, for further clients
	Prefix  string         // the subtest's own, ends in ':'
	Real    bool           // not miniredis
}

// Worlds runs the subtests "real", on the shared redis-server, and "miniredis", on a server of its
// own whose keys expire in real time. The function may call t.Parallel.
func Worlds(t *testing.T, cases func(t *testing.T, w World)) {
	t.Helper()
	t.Run("real", func(t *testing.T) {
		cases(t, newWorld(t, Shared(t).Options(), true))
	})
	t.Run("miniredis", func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		require.NoError(t, m.Start())
		t.Cleanup(m.Close)
		cases(t, newWorld(t, options(m.Addr()), false))
	})
}

// OnReal runs in parallel on the shared redis-server. On miniredis the time at which a key expires
// (PEXPIRETIME) changes by a millisecond now and then.
func OnReal(t *testing.T, cases func(t *testing.T, w World)) {
	t.Helper()
	t.Parallel()
	cases(t, newWorld(t, Shared(t).Options(), true))
}

func newWorld(t *testing.T, o *redis.Options, isReal bool) World {
	own := *o
	own.ReadTimeout = time.Minute // miniredis looks at every expiry at each command
	return World{Client: newClient(t, &own), Options: o, Prefix: Prefix(t), Real: isReal}
}

// Prefix returns a unique one with the test's name, without characters that patterns or hash tags
// know, and with ':' at its end.
func Prefix(t testing.TB) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, t.Name())
	return name[max(0, len(name)-60):] + "-" + rand.Text()[:10] + ":"
}
