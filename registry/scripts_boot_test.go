package registry

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBootsAndWordsOnEachServer(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(o *owner){
		"a boot is above every earlier one though the clock went back and no heartbeat remembers it": func(o *owner) {
			ctx, year := o.Context(), 365*24*time.Hour
			future := fmt.Sprintf("%016d", time.Now().Add(year/2).UnixMicro())
			older, beaten := o, o.other("another")
			grace := older.Timing().Grace().Milliseconds()
			older.boot = future + "0000000000" // drawn while the clock was ahead
			older.run(beatScript, grace)
			higher := func(what string) {
				o.Helper()
				older.forgetHeartbeat()
				newer := o.other("o")
				require.Greater(o, newer.boot, older.boot, what)
				require.Len(o, newer.boot, 26, what)
				_, err := older.own(ctx, beatScript, grace)
				require.ErrorIs(o, err, ErrReplaced, what)
				older = newer
			}
			higher("the heartbeat expired")
			higher("and again")
			older.do("DEL", older.keys.Witness())
			older.run(beatScript, grace)
			higher("the witness was deleted, and a beat came before the heartbeat's end")
			older.do("HSET", older.keys.Witness(), "boot", "9999999999999999")
			older.run(beatScript, grace)
			higher("a record that no clock can have made is replaced")
			beaten.run(beatScript, grace)
			higher("a lower boot of another instance does not lower the record")
			older.do("SET", older.keys.Witness(), "no hash")
			older.run(beatScript, grace)
			newer := o.other("o")
			require.Greater(o, newer.boot, older.boot, "the heartbeat alone remembers it")
			older.do("DEL", older.keys.Witness())
			older.do("HSET", older.keys.Witness(), "grace", grace)
			older.forgetHeartbeat()
			last := o.other("last")
			require.Less(o, last.boot, future, "by the clock again")
			require.Equal(o, last.boot[:16], older.c.HGet(ctx, older.keys.Witness(), "boot").Val(), "also of a boot by the clock")
		},
		"a boot before anybody listened is recorded as soon as somebody does": func(o *owner) {
			first, second := o.other("first"), o.other("second")
			require.Zero(o, first.c.Exists(o.Context(), first.keys.Witness()).Val())
			grace := first.Timing().Grace().Milliseconds()
			first.do("HSET", first.keys.Witness(), "grace", grace)
			for _, o := range []*owner{first, second, first} {
				o.run(beatScript, grace)
			}
			require.Equal(o, second.boot[:16], first.c.HGet(o.Context(), first.keys.Witness(), "boot").Val())
		},
		"a message has one word for each id, whatever it is": func(o *owner) {
			former := o.other("former")
			sub := o.w.Client.Subscribe(o.Context(), o.keys.Heartbeat("former"))
			defer func() { require.NoError(o, sub.Close()) }()
			_, err := sub.Receive(o.Context())
			require.NoError(o, err)
			ids := []any{
				"", " a ", "/a/b", "%41", "50%", "nul\x00", "tab\t\n", "del\x7f", "имя\xff", "imei", "/", "//r1 5 imei",
				"a  b", "%", "%2", "%zz", "{a}", "alice|phone", "no\u00a0break", "next\u0085line", strings.Repeat("long ", 200),
			}
			former.run(registerScript, ids...)
			o.run(registerScript, ids...)
			msg, err := sub.ReceiveMessage(o.Context())
			require.NoError(o, err)
			require.Contains(o, msg.Payload, "% %20a%20 %2Fa/b %2541 50%25 nul%00 tab%09%0A del%7F имя\xff imei %2F ")
			require.Len(o, strings.Split(msg.Payload, " "), len(ids))
			for i, w := range strings.Split(msg.Payload, " ") {
				require.Equal(o, w, word(ids[i].(string)))
				require.Equal(o, ids[i], unword(w))
			}
			require.Equal(o, "50% %zz %2", unword("50%")+" "+unword("%zz")+" "+unword("%2"), "what is none of ours")
		},
	} {
		t.Run(name, func(t *testing.T) { owners(t, test) })
	}
}

func TestATokenThatNoBootCanHaveDrawnEndsNobody(t *testing.T) {
	owners(t, func(o *owner) {
		ctx := o.Context()
		grace := o.Timing().Grace().Milliseconds()
		key := o.keys.Heartbeat("o")
		for _, token := range []string{strings.Repeat("9", 26), "8999999999999999" + strings.Repeat("0", 10)} {
			o.do("SET", key, "1/"+token, "EX", 60)
			o.run(beatScript, grace)
			require.NotContains(o, o.c.Get(ctx, key).Val(), token)
			o.do("HSET", o.keys.Witness(), "boot", token[:16])
			o.do("SET", key, "1/"+token, "EX", 60)
			require.Less(o, o.other("o").boot, "8", "by the clock")
			o = o.other("o")
		}
	})
}
