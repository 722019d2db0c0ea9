package orphan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

// The rules of a Colyseus backend, with a prefix for the test.
func reservations(p string) Rule {
	return Rule{
		Name: "reservations", Delete: true,
		Keys: p + "queue:reservation:{user}", Read: "json", Bind: map[string]string{"room": ".roomId"},
		KeepIf: []Sign{
			{Field: &Field{Hash: p + "roomcaches", Field: "{room}"}},
			{Channel: "$" + p + "{room}"},
		},
		UnlessLost: []Reference{
			{Exists: p + "roomcaches"},
			{Channels: &Channels{Pattern: "$" + p + "*", When: When{HashNotEmpty: p + "roomcaches"}}},
		},
		MinAge: &Age{FromTTL: time.Hour, Over: 2 * time.Minute},
		Grace:  time.Minute,
	}
}

func TestAReservationOfAGoneRoomGoesAfterItsGraceAndOneOfALivingRoomStays(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, reservations(p))
		ctx := t.Context()
		// The channel of a room that is alive, though not listed.
		sub := r.rdb.Subscribe(ctx, "$"+p+"delisted")
		defer sub.Close()
		_, err := sub.Receive(ctx)
		require.NoError(t, err)
		reserve := func(user, room string, left time.Duration) {
			r.do("SET", p+"queue:reservation:"+user, `{"roomId":"`+room+`","roomName":"duel"}`, "PX", left.Milliseconds())
		}
		r.do("HSET", p+"roomcaches", "listed", "{}")
		reserve("listed", "listed", 50*time.Minute)
		reserve("delisted", "delisted", 50*time.Minute)
		reserve("gone", "gone", 50*time.Minute)
		reserve("young", "gone", 59*time.Minute)
		r.do("SET", p+"queue:reservation:creating", `{"status":"creating"}`, "EX", 60)
		r.do("SET", p+"queue:reservation:eternal", `{"roomId":"gone"}`)
		r.do("SET", p+"queue:reservation:broken", `{"roomId":`)

		first := r.sweep("reservations")
		require.Equal(t, janitor.Done, first.Outcome, first.Detail)
		require.Equal(t, 7, first.Scanned)
		require.Equal(t, 1, first.Condemned)
		require.Zero(t, first.Removed)
		require.Equal(t, map[string]int{alive: 2, young: 1, unreadable: 3, waiting: 1}, first.Kept)

		r.pass("reservations", time.Minute)
		second := r.sweep("reservations")
		require.Equal(t, janitor.Done, second.Outcome, second.Detail)
		require.Equal(t, 1, second.Removed)
		require.Equal(t, 1, second.Keys)
		require.False(t, r.exists(p+"queue:reservation:gone"))
		require.Equal(t, map[string]uint64{"reservations": 1}, r.set.Stats().Rules)
		keys, err := r.rdb.Keys(ctx, p+"queue:reservation:*").Result()
		require.NoError(t, err)
		require.Len(t, keys, 6)
		require.Zero(t, r.rdb.HLen(ctx, marksKey(r.layout, "reservations")).Val())
	})
}
