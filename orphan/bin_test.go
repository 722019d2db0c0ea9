package orphan

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
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
		r.do("HDEL", stateKey(r.layout, "sessions"), "held_until")
		r.pass("sessions", time.Minute)
		require.Equal(t, n, r.sweep("sessions").Removed)
		var aside []string
		for _, text := range r.rdb.HGetAll(ctx, binnedKey(r.layout, "sessions")).Val() {
			e := binned{}
			err := json.Unmarshal([]byte(text), &e)
			require.NoError(t, err)
			require.Equal(t, time.Duration(-1), r.rdb.PTTL(ctx, string(e.Aside)).Val())
			aside = append(aside, string(e.Aside))
		}
		require.Len(t, aside, n)

		bins := Bins{Client: r.set.c.Client, Layout: r.layout}
		listed, err := bins.List(ctx, "sessions")
		require.NoError(t, err)
		back, err := bins.Restore(ctx, listed[0].ID)
		require.NoError(t, err)
		require.Equal(t, Back, back[0].Fate)
		require.Positive(t, r.rdb.PTTL(ctx, listed[0].Key).Val(), "with its expiry")

		for _, id := range r.rdb.HKeys(ctx, binnedKey(r.layout, "sessions")).Val() {
			r.do("ZADD", dropsKey(r.layout, "sessions"), 1, id)
		}
		r.sweep("sessions")
		require.Zero(t, r.rdb.Exists(ctx, aside...).Val())
		require.False(t, r.exists(binnedKey(r.layout, "sessions")) || r.exists(dropsKey(r.layout, "sessions")))
	})
}

// An entry that cannot be read stops neither the rule nor what the bin has besides.
func TestABinIsDroppedAroundAnEntryThatCannotBeRead(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p, ctx := w.Prefix, t.Context()
		rule := session(p)
		rule.Bin = time.Hour
		r := newRig(t, w.Options, p, nil, rule)
		bin, drops := binnedKey(r.layout, "sessions"), dropsKey(r.layout, "sessions")
		for i := range dropOf + 20 { // more than one step reads
			id := fmt.Sprintf("a%03d", i)
			r.do("HSET", bin, id, "{")
			r.do("ZADD", drops, 1, id)
		}
		aside := "orphan:bin:" + p
		for _, id := range []string{"z1", "later"} {
			r.do("SET", aside+id, "1")
			r.do("HSET", bin, id, fmt.Sprintf(`{"id":%q,"key":%q,"aside":%q,"expires":-1,"until":%s}`,
				id, p+id, aside+id, ms(time.Now().Add(time.Hour))))
		}
		r.do("ZADD", drops, 2, "z1", ms(time.Now().Add(time.Hour)), "later")

		require.Equal(t, janitor.Done, r.sweep("sessions").Outcome)
		require.Zero(t, r.rdb.Exists(ctx, aside+"z1").Val())
		require.Equal(t, int64(dropOf+20+1), r.rdb.HLen(ctx, bin).Val(), "and nothing is lost silently")

		bins := Bins{Client: r.set.c.Client, Layout: r.layout}
		listed, err := bins.List(ctx, "sessions")
		require.ErrorContains(t, err, bin)
		require.Len(t, listed, 1)
		back, err := bins.Restore(ctx, listed[0].ID, "sessions/not-there")
		require.NoError(t, err)
		require.Equal(t, Back, back[0].Fate)
		require.True(t, r.exists(p+"later"))
	})
}
