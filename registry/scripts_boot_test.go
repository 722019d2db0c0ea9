package registry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestBootsAndWordsOnEachServer(t *testing.T) {
	t.Parallel()
	cases := map[string]func(t *testing.T, w redistest.World){
		"a boot is above every earlier one though the clock went back and no heartbeat remembers it": func(t *testing.T, w redistest.World) {
			ctx, year := t.Context(), 365*24*time.Hour
			future := fmt.Sprintf("%016d", time.Now().Add(year/2).UnixMicro())
			older, beaten := newOwner(t, w, "o"), newOwner(t, w, "another")
			grace := older.Timing().Grace().Milliseconds()
			older.boot = future + "0000000000" // drawn while the clock was ahead
			older.run(beatScript, grace)
			higher := func(what string) {
				t.Helper()
				older.forgetHeartbeat()
				newer := newOwner(t, w, "o")
				require.Greater(t, newer.boot, older.boot, what)
				require.Len(t, newer.boot, 26, what)
				_, err := older.own(ctx, beatScript, grace)
				require.ErrorIs(t, err, ErrReplaced, what)
				older = newer
			}
			higher("the heartbeat expired")
			higher("and again")
			require.NoError(t, older.c.Del(ctx, older.keys.Witness()).Err())
			older.run(beatScript, grace)
			higher("the witness was deleted, and a beat came before the heartbeat's end")
			require.NoError(t, older.c.HSet(ctx, older.keys.Witness(), "boot", "9999999999999999").Err())
			older.run(beatScript, grace)
			higher("a record that no clock can have made is replaced")
			beaten.run(beatScript, grace)
			higher("a lower boot of another instance does not lower the record")
			require.NoError(t, older.c.Set(ctx, older.keys.Witness(), "no hash", 0).Err())
			older.run(beatScript, grace)
			newer := newOwner(t, w, "o")
			require.Greater(t, newer.boot, older.boot, "the heartbeat alone remembers it")
			require.NoError(t, older.c.Del(ctx, older.keys.Witness()).Err())
			require.NoError(t, older.c.HSet(ctx, older.keys.Witness(), "grace", grace).Err())
			older.forgetHeartbeat()
			last := newOwner(t, w, "last")
			require.Less(t, last.boot, future, "by the clock again")
			require.Equal(t, last.boot[:16], older.c.HGet(ctx, older.keys.Witness(), "boot").Val(), "also of a boot by the clock")
		},
		"a boot before anybody listened is recorded as soon as somebody does": func(t *testing.T, w redistest.World) {
			first, second := newOwner(t, w, "first"), newOwner(t, w, "second")
			require.Zero(t, first.c.Exists(t.Context(), first.keys.Witness()).Val())
			grace := first.Timing().Grace().Milliseconds()
			require.NoError(t, first.c.HSet(t.Context(), first.keys.Witness(), "grace", grace).Err())
			for _, o := range []*owner{first, second, first} {
				o.run(beatScript, grace)
			}
			require.Equal(t, second.boot[:16], first.c.HGet(t.Context(), first.keys.Witness(), "boot").Val())
		},
		"a message has one word for each id, whatever it is": func(t *testing.T, w redistest.World) {
			o, former := newOwner(t, w, "o"), newOwner(t, w, "former")
			sub := w.Client.Subscribe(t.Context(), o.keys.Heartbeat("former"))
			defer func() { require.NoError(t, sub.Close()) }()
			_, err := sub.Receive(t.Context())
			require.NoError(t, err)
			ids := []any{
				"", " a ", "/a/b", "%41", "50%", "nul\x00", "tab\t\n", "del\x7f", "имя\xff", "imei", "/", "//r1 5 imei",
				"a  b", "%", "%2", "%zz", "{a}", "alice|phone", "no\u00a0break", "next\u0085line", strings.Repeat("long ", 200),
			}
			former.run(registerScript, ids...)
			o.run(registerScript, ids...)
			msg, err := sub.ReceiveMessage(t.Context())
			require.NoError(t, err)
			require.Contains(t, msg.Payload, "% %20a%20 %2Fa/b %2541 50%25 nul%00 tab%09%0A del%7F имя\xff imei %2F ")
			require.Len(t, strings.Split(msg.Payload, " "), len(ids))
			for i, w := range strings.Split(msg.Payload, " ") {
				require.Equal(t, w, word(ids[i].(string)))
				require.Equal(t, ids[i], unword(w))
			}
			require.Equal(t, "50% %zz %2", unword("50%")+" "+unword("%zz")+" "+unword("%2"), "what is none of ours")
		},
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			redistest.Worlds(t, func(t *testing.T, w redistest.World) {
				t.Parallel()
				run(t, w)
			})
		})
	}
}

func TestATokenThatNoBootCanHaveDrawnEndsNobody(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		o, ctx := newOwner(t, w, "o"), t.Context()
		grace := o.Timing().Grace().Milliseconds()
		key := o.keys.Heartbeat("o")
		for _, token := range []string{strings.Repeat("9", 26), "8999999999999999" + strings.Repeat("0", 10)} {
			require.NoError(t, o.c.Set(ctx, key, "1/"+token, time.Minute).Err())
			o.run(beatScript, grace)
			require.NotContains(t, o.c.Get(ctx, key).Val(), token)
			require.NoError(t, o.c.HSet(ctx, o.keys.Witness(), "boot", token[:16]).Err())
			require.NoError(t, o.c.Set(ctx, key, "1/"+token, time.Minute).Err())
			require.Less(t, newOwner(t, w, "o").boot, "8", "by the clock")
			o = newOwner(t, w, "o")
		}
	})
}
