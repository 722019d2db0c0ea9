package redistest

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

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
