package orphan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// counting is a hook that counts commands.
type counting struct {
	mu    sync.Mutex
	calls map[string]int
}

func watch(c redis.UniversalClient) *counting {
	w := &counting{calls: map[string]int{}}
	c.AddHook(w)
	return w
}

func (*counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.mu.Lock()
		w.calls[cmd.Name()]++
		w.mu.Unlock()
		return next(ctx, cmd)
	}
}

func (w *counting) count(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls[name]
}

func TestAllRulesOfACycleShareOneWalk(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		walks := func(n int) int {
			p := fmt.Sprintf("%s%d:", w.Prefix, n)
			var rules []rules.Rule
			for i := range n {
				rule := session(fmt.Sprintf("%s%d:", p, i))
				rule.Name = fmt.Sprint("sessions", i)
				rules = append(rules, rule)
			}
			r := newRig(t, w.Options, p, nil, rules...)
			seen := watch(r.set.c.Client)
			r.sweep("")
			for i := range n {
				require.Equal(t, janitor.Done, r.result(fmt.Sprint("sessions", i)).Outcome)
			}
			return seen.count("scan")
		}
		rdb := redis.NewClient(w.Options)
		t.Cleanup(func() { _ = rdb.Close() })
		for i := range 20 {
			keys := make([]any, 2*1000)
			for j := range 1000 {
				keys[2*j], keys[2*j+1] = fmt.Sprint(w.Prefix, "other:", i, ":", j), "1"
			}
			require.NoError(t, rdb.MSet(t.Context(), keys...).Err())
		}
		one := walks(1)
		require.Greater(t, one, 10)
		require.Less(t, walks(12), 4*one, "who joins late has the walk go on, and no walk of its own")
	})
}

// A plan of many rules is read from one walk, too.
func TestAPlanOfManyRulesWalksOnce(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rules := make([]rules.Rule, 5)
		for i := range rules {
			rules[i] = session(fmt.Sprintf("%s%d:", p, i))
			rules[i].Name = fmt.Sprint("sessions", i)
		}
		rdb := redis.NewClient(w.Options)
		t.Cleanup(func() { _ = rdb.Close() })
		require.NoError(t, rdb.Set(t.Context(), p+"3:session:a", "old", 0).Err())
		set, err := New(Config{Rules: rules, Client: rdb, Layout: guard.Layout{Prefix: p + "own:"}})
		require.NoError(t, err)
		plan := func() []Plan {
			plans, err := set.Plan(t.Context(), 1)
			require.NoError(t, err)
			return plans
		}
		plans := plan()
		require.Equal(t, map[string]int{condemned: 1}, plans[3].Verdicts)
		require.Zero(t, plans[2].Scanned)
	})
}

// Nobody owns a walk: one that fails, or leaves, stops no other.
func TestAWalkGoesOnWithoutThoseWhoLeave(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		rdb := redis.NewClient(w.Options)
		t.Cleanup(func() { _ = rdb.Close() })
		p, ctx := w.Prefix, t.Context()
		var want []string
		for i := range 3000 {
			key := fmt.Sprintf("%skey:%04d", p, i)
			want = append(want, key)
			require.NoError(t, rdb.Set(ctx, key, "1", 0).Err())
		}
		servers, err := masters(ctx, rdb)
		require.NoError(t, err)
		tpl, err := rules.ParseTemplate(p+"key:{id}", false)
		require.NoError(t, err)
		ws := new(walks)
		late := errors.New("late")
		var riders conc.WaitGroup
		for range 3 {
			d := ws.join(servers, []*rules.Template{tpl})
			riders.Go(func() {
				require.ErrorIs(t, d.eachKey(ctx, plainly{rdb}, func([]string) error { return late }), late)
			})
			other := ws.join(servers, []*rules.Template{tpl})
			riders.Go(func() {
				gone, cancel := context.WithCancelCause(ctx)
				cancel(late)
				require.ErrorIs(t, other.eachKey(gone, plainly{rdb}, func([]string) error { return nil }), late)
			})
		}
		var met []string
		d := ws.join(servers, []*rules.Template{tpl})
		require.NoError(t, d.eachKey(ctx, plainly{rdb}, func(keys []string) error {
			met = append(met, keys...)
			return nil
		}))
		riders.Wait()
		slices.Sort(met)
		require.Equal(t, want, slices.Compact(met))
		require.Nil(t, ws.running)
		require.Nil(t, ws.boarding)
	})
}
