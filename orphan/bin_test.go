package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
)

// Redis frees what expires on its main thread: what is in a bin has no expiry, and is unlinked.
func TestNothingInABinExpiresAndItIsDroppedWhenItsTimeIsOver(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p, ctx := w.Prefix, t.Context()
		rule := session(p)
		rule.Bin = time.Hour
		r := newRig(t, w.Options, p, nil, rule)
		const n = 130 // more than one step drops
		for i := range n {
			r.do("SET", fmt.Sprint(p, "session:", i), "old", "PX", 3600_000)
		}
		r.sweep("sessions")
		r.do("HDEL", stateKey(r.layout, "sessions"), heldUntil)
		r.pass("sessions", time.Minute)
		require.Equal(t, n, r.sweep("sessions").Removed)
		var aside []string
		for _, text := range r.rdb.HGetAll(ctx, binnedKey(r.layout, "sessions")).Val() {
			e, err := readEntry("sessions", text)
			require.NoError(t, err)
			require.Equal(t, time.Duration(-1), r.rdb.PTTL(ctx, e.Aside).Val())
			aside = append(aside, e.Aside)
		}
		require.Len(t, aside, n)

		// One is restored, by what it costs for one.
		bins := Bins{Client: r.set.c.Client, Layout: r.layout}
		listed, err := bins.List(ctx, "sessions")
		require.NoError(t, err)
		seen := watch(r.set.c.Client)
		back, err := bins.Restore(ctx, listed[0].ID)
		require.NoError(t, err)
		require.Equal(t, Back, back[0].Fate)
		require.Zero(t, seen.count("hscan")+seen.count("hgetall")+seen.count("zscan"))
		require.Positive(t, r.rdb.PTTL(ctx, listed[0].Key).Val(), "with its expiry")

		// An older version has left one, and a rule that is not in use any more another.
		r.do("SET", "orphan:bin:"+p+"old", "1")
		r.do("ZADD", oldBinKey(r.layout, "gone"), 1, `{"id":"1-1:1","aside":"orphan:bin:`+p+`old","key":"x","expires":-1,"at":1}`)
		r.do("HSET", passesKey(r.layout), "gone", "{}")
		for _, id := range r.rdb.HKeys(ctx, binnedKey(r.layout, "sessions")).Val() {
			r.do("ZADD", dropsKey(r.layout, "sessions"), 1, id)
		}
		r.sweep("sessions")
		require.Zero(t, r.rdb.Exists(ctx, append(aside, "orphan:bin:"+p+"old")...).Val())
		require.False(t, r.exists(binnedKey(r.layout, "sessions")) || r.exists(dropsKey(r.layout, "sessions")))
		require.False(t, r.exists(oldBinKey(r.layout, "gone")))
	})
}
