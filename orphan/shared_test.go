package orphan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/sourcegraph/conc"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func manySessions(n int, p string) (yaml string) {
	for i := range n {
		yaml += fmt.Sprintf("- {name: sessions%d, keys: '%s%d:session:{user}', keep_if: [{exists: '%s%d:user:{user}'}]}\n", i, p, i, p, i)
	}
	return yaml
}

func TestAllRulesOfACycleShareOneWalk(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		walks := func(n int) int {
			own := w
			own.Prefix = fmt.Sprintf("%s%d:", w.Prefix, n)
			r := newRig(t, own, manySessions(n, "P:"), config{})
			seen := r.on("scan ", &hook{times: 1_000_000})
			r.sweep("")
			for i := range n {
				require.Equal(t, janitor.Done, r.result(fmt.Sprint("sessions", i)).Outcome)
			}
			hits := seen.hits
			_, err := r.set.Plan(t.Context(), 1)
			require.NoError(t, err)
			require.Less(t, seen.hits-hits, 3*hits, "so does a plan, in smaller pages")
			return hits
		}
		for i := range 20 {
			keys := make([]any, 2*1000)
			for j := range 1000 {
				keys[2*j], keys[2*j+1] = fmt.Sprint(w.Prefix, "other:", i, ":", j), "1"
			}
			require.NoError(t, w.Client.MSet(t.Context(), keys...).Err())
		}
		one := walks(1)
		require.Greater(t, one, 10)
		require.Less(t, walks(12), 4*one, "who joins late has the walk go on, and no walk of its own")
	})
}

// Nobody owns a walk: one that fails, or leaves, stops no other.
func TestAWalkGoesOnWithoutThoseWhoLeave(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p, ctx, rdb := w.Prefix, t.Context(), w.Client
		var want []string
		for i := range 3000 {
			key := fmt.Sprintf("%skey:%04d", p, i)
			want = append(want, key)
			require.NoError(t, rdb.Set(ctx, key, "1", 0).Err())
		}
		servers, err := masters(ctx, rdb, nodeTimeout)
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
		require.Nil(t, ws.boarding)
	})
}
