package registry_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// Other services read these keys: the names are part of the contract.
func TestTheKeysHaveTheNamesThatOthersRead(t *testing.T) {
	t.Parallel()
	for _, l := range []registry.Layout{{}, {Prefix: "p:"}} {
		require.Equal(t, l.Prefix+"connections:registry", l.Registry())
		require.Equal(t, l.Prefix+"instance:heartbeat:i", l.Heartbeat("i"))
		require.Equal(t, l.Prefix+"instance:devices:i", l.Devices("i"))
		require.Equal(t, l.Prefix+"instances:roster", l.Roster())
		require.Equal(t, l.Prefix+"janitor:leader", l.Lease())
		require.Equal(t, l.Prefix+"janitor:witness", l.Witness())
		require.Equal(t, l.Prefix+"janitor:paused", l.Paused())
		require.Equal(t, l.Prefix+"janitor:audit", l.Audit())
		require.Equal(t, "bye:i", l.Bye("i"))
	}
}

// garbled is a hook that changes the answers of scripts: a proxy, or a server that is none of Redis.
type garbled struct {
	change atomic.Pointer[func([]any) []any]
}

func (g *garbled) set(change func([]any) []any) { g.change.Store(&change) }

func (g *garbled) DialHook(next redis.DialHook) redis.DialHook { return next }
func (g *garbled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *garbled) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c, ok := cmd.(*redis.Cmd); ok && err == nil {
			if change, list := g.change.Load(), c.Val(); change != nil {
				if values, ok := list.([]any); ok {
					c.SetVal((*change)(slices.Clone(values)))
				}
			}
		}
		return err
	}
}

// garblings are answers of another length, and, of n values, each of another type in turn.
func garblings(n int) (all []func([]any) []any) {
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

func TestAnAnswerOfTheGuardThatMakesNoSenseIsAnError(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		s := newTerm(t, w.Options, w.Prefix)
		g := &garbled{}
		s.AddHook(g)
		for _, change := range garblings(5) {
			g.set(change)
			_, err := s.guard.Do(t.Context(), s.batch(1))
			require.ErrorContains(t, err, "unexpected answer")
		}
		for _, change := range garblings(0) {
			g.set(change)
			_, err := s.guard.Tick(t.Context())
			require.ErrorContains(t, err, "unexpected answer")
			_, _, err = s.guard.Open(t.Context(), s.lease)
			require.ErrorContains(t, err, "values in the answer")
		}
	})
}

func TestAnAnswerToAnOwnerThatMakesNoSenseIsAFailure(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		g := &garbled{}
		r := w.start("r1", func(c *registry.Config) { c.Control.(*redis.Client).AddHook(g) })
		time.Sleep(registry.DefaultHeartbeatInterval)
		synctest.Wait()
		require.Zero(t, max(0, r.failures("heartbeat")))
		var status int
		g.set(func(v []any) []any { status = len(v); return v })
		time.Sleep(registry.DefaultHeartbeatInterval)
		synctest.Wait()
		require.Equal(t, 7, status)
		for i, change := range garblings(status) {
			if i == 2 { // the word OK is not looked at
				continue
			}
			before := max(0, r.failures("heartbeat"))
			g.set(change)
			time.Sleep(registry.DefaultHeartbeatInterval)
			synctest.Wait()
			require.Greater(t, r.failures("heartbeat"), before, "garbling %d", i)
			g.set(func(v []any) []any { return v })
			time.Sleep(registry.DefaultHeartbeatInterval)
		}
		w.end(r)
	})
}

func TestAnAnswerToALookupThatMakesNoSenseIsAFailure(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, w *world) {
		g := &garbled{}
		r := w.start("r1", func(c *registry.Config) { c.Client.(*redis.Client).AddHook(g) })
		r.register(t, "imei")
		for i, change := range garblings(0) {
			g.set(change)
			_, err := r.Lookup(t.Context(), "imei")
			require.ErrorContains(t, err, "unexpected answer")
			require.InDelta(t, i+1, r.failures("lookup"), 0)
		}
		w.end(r)
	})
}

func TestATickTellsOfNoInstancesWhereTheRosterIsNone(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		c := redis.NewClient(lease.Options(w.Options))
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		l := registry.Layout{Prefix: w.Prefix}
		guard := registry.NewGuard(c, c, l, gap, warm, "leader")
		require.NoError(t, c.Set(t.Context(), l.Roster(), "no set", 0).Err())
		witness, err := guard.Tick(t.Context())
		require.NoError(t, err)
		require.Zero(t, witness.Instances)
		require.NoError(t, c.Del(t.Context(), l.Roster()).Err())
		require.NoError(t, c.SAdd(t.Context(), l.Roster(), "a", "b").Err())
		witness, err = guard.Tick(t.Context())
		require.NoError(t, err)
		require.Equal(t, int64(2), witness.Instances)
		require.Zero(t, witness.Evicted)
	})
}
