package registry

import (
	"fmt"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestManyAreLookedUpAtOnce(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		ctx, l := t.Context(), Layout{Prefix: w.Prefix}
		r := newListing(t, w, l)
		var ids []string
		for i := range 1200 {
			ids = append(ids, fmt.Sprint("id-", i))
			switch {
			case i%3 == 0:
				w.Client.HSet(ctx, l.Registry(), ids[i], "living")
			case i%3 == 1:
				w.Client.HSet(ctx, l.Registry(), ids[i], "dead")
			}
		}
		w.Client.Set(ctx, l.Heartbeat("living"), "1", 0)
		owners, err := r.LookupMany(ctx, ids)
		require.NoError(t, err)
		require.Len(t, owners, 800)
		require.Equal(t, Owner{Instance: "living", Live: true}, owners["id-0"])
		require.Equal(t, Owner{Instance: "dead"}, owners["id-1"])
		require.NotContains(t, owners, "id-2")
		_, err = r.Lookup(ctx, "id-2")
		require.ErrorIs(t, err, ErrNotRegistered)
		owners, err = r.LookupMany(ctx, nil)
		require.NoError(t, err)
		require.Empty(t, owners)
		w.Client.Set(ctx, l.Registry(), "no hash", 0)
		_, err = r.LookupMany(ctx, ids)
		require.ErrorContains(t, err, "look up: WRONGTYPE")
	})
}

func TestOwnersAndWhatTheyHold(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		ctx, l := t.Context(), Layout{Prefix: w.Prefix}
		r := newListing(t, w, l)
		w.Client.SAdd(ctx, l.Roster(), "b", "a")
		w.Client.Set(ctx, l.Heartbeat("a"), "1", 0)
		owners, err := r.Owners(ctx)
		require.NoError(t, err)
		require.Equal(t, []Owner{{"a", true}, {"b", false}}, owners)

		var want []string
		pipe := w.Client.Pipeline()
		for i := range 2500 {
			id, owner := fmt.Sprintf("id-%04d", i), "a"
			if i%5 == 0 {
				owner = "b" // it moved, and the index does not know yet
			} else {
				want = append(want, id)
			}
			pipe.SAdd(ctx, l.Devices("a"), id)
			pipe.HSet(ctx, l.Registry(), id, owner)
		}
		_, err = pipe.Exec(ctx)
		require.NoError(t, err)
		var have []string
		for id, err := range r.Holdings(ctx, "a") {
			require.NoError(t, err)
			have = append(have, id)
		}
		slices.Sort(have)
		require.Equal(t, want, slices.Compact(have))
		for range r.Holdings(ctx, "nobody") {
			require.Fail(t, "nobody holds nothing")
		}
		for range r.Holdings(ctx, "a") {
			break
		}
		w.Client.Set(ctx, l.Devices("c"), "no set", 0)
		for _, err := range r.Holdings(ctx, "c") {
			require.ErrorContains(t, err, "list what c holds: WRONGTYPE")
		}
	})
}

func newListing(t *testing.T, w redistest.World, l Layout) *Registry {
	t.Helper()
	c := redis.NewClient(lease.Options(w.Options))
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	r, err := New(Config{Client: c, Control: c, Instance: "reader", Layout: l})
	require.NoError(t, err)
	return r
}
