package orphan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A worker's key that has lost its expiry stays for ever, unless somebody still writes it.
func TestWhatIsUnchangedAndWithoutExpiryGoesAfterItsGrace(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, rules.Rule{
			Name: "replies", Delete: true, Keys: p + "reply:{client}", Type: "list",
			GoneIf: &rules.Evidence{NoExpiry: true}, Grace: time.Hour,
		})
		for _, client := range []string{"dead", "busy", "late", "ends"} {
			r.do("RPUSH", p+"reply:"+client, "1")
		}
		r.do("PEXPIRE", p+"reply:ends", 3600_000)
		require.Equal(t, map[string]int{alive: 1, waiting: 3}, r.sweep("replies").Kept)
		r.pass("replies", time.Hour)
		r.do("RPUSH", p+"reply:busy", "2")
		r.set.c.Client.AddHook(&before{command: "evalsha", with: `"seen"`, f: func() {
			r.do("PEXPIRE", p+"reply:late", 3600_000)
		}})
		r.sweep("replies")
		require.True(t, r.exists(p+"reply:busy", p+"reply:late", p+"reply:ends"))
		require.False(t, r.exists(p+"reply:dead"))
	})
}

func TestAFieldThatIsMissingIsEvidence(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil,
			rules.Rule{
				Name: "ghosts", Delete: true, Keys: p + "job:{id}", Read: "hash",
				GoneIf: &rules.Evidence{Missing: ".created_at"}, Grace: time.Hour,
			},
			rules.Rule{
				Name: "texts", Delete: true, Keys: p + "text:{id}", Read: "json",
				GoneIf: &rules.Evidence{Missing: ".owner.id"}, Grace: time.Hour,
			})
		r.do("HSET", p+"job:ghost", "last_heartbeat", "now")
		r.do("HSET", p+"job:saved", "last_heartbeat", "now")
		r.do("HSET", p+"job:whole", "created_at", "2026")
		r.do("HSET", p+"job:empty", "created_at", "")
		r.do("SET", p+"job:other", "text")
		r.do("SET", p+"text:without", `{"owner": {}}`)
		r.do("SET", p+"text:null", `{"owner": {"id": null}}`)
		r.do("SET", p+"text:odd", `{"owner": "ann"}`)
		r.do("SET", p+"text:none", `[]`)
		require.Equal(t, map[string]int{waiting: 2, alive: 2, unreadable: 1}, r.sweep("ghosts").Kept)
		require.Equal(t, map[string]int{waiting: 1, alive: 2, unreadable: 1}, r.result("texts").Kept)
		r.pass("ghosts", time.Hour)
		r.pass("texts", time.Hour)
		r.set.c.Client.AddHook(&before{command: "evalsha", with: p + "job:saved", f: func() {
			r.do("HSET", p+"job:saved", "created_at", "2026")
		}})
		r.sweep("ghosts")
		require.False(t, r.exists(p+"job:ghost"))
		require.False(t, r.exists(p+"text:without"))
		require.True(t, r.exists(p+"job:saved", p+"job:whole", p+"job:empty", p+"job:other"))
		require.True(t, r.exists(p+"text:null", p+"text:odd", p+"text:none"))
	})
}

// An owner's name is the whole value of a key, or of a field of a hash; its heartbeat is a field.
func TestAWholeValueNamesTheOwner(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		beats := []rules.Sign{{Field: &rules.Field{Hash: p + "beats", Field: "{worker}", Unit: "ms", Within: time.Minute}}}
		r := newRig(t, w.Options, p, nil,
			rules.Rule{
				Name: "routes", Delete: true, Keys: p + "route:{conn}", Read: "text",
				Bind: map[string]string{"worker": "."}, KeepIf: beats, UnlessLost: []rules.Reference{{Exists: p + "beats"}},
			},
			rules.Rule{
				Name: "presence", Delete: true, Members: &rules.Members{Hash: p + "presence", As: "user"}, Read: "json",
				Bind: map[string]string{"worker": ".node"}, KeepIf: beats, UnlessLost: []rules.Reference{{Exists: p + "beats"}},
			})
		r.do("HSET", p+"beats", "w1", ms(time.Now()), "w2", ms(time.Now().Add(-time.Hour)), "w3", "soon",
			"w4", ms(time.Now().Add(-time.Hour)))
		for conn, worker := range map[string]string{"a": "w1", "b": "w2", "c": "w3", "d": "w4", "e": "", "f": "w9"} {
			r.do("SET", p+"route:"+conn, worker)
			r.do("HSET", p+"presence", conn, `{"node": "`+worker+`"}`)
		}
		r.do("HSET", p+"presence", "g", "w2")
		require.Equal(t, map[string]int{alive: 1, waiting: 3, unknown: 1, unreadable: 1}, r.sweep("routes").Kept)
		require.Equal(t, map[string]int{alive: 1, waiting: 3, unknown: 1, unreadable: 2}, r.result("presence").Kept)
		r.pass("routes", rules.DefaultGrace)
		r.pass("presence", rules.DefaultGrace)
		r.do("HSET", p+"presence", "f", `{"node": "w4"}`)
		r.do("SET", p+"route:f", "w4")
		r.set.c.Client.AddHook(&before{command: "evalsha", with: `"seen"`, f: func() {
			r.do("HSET", p+"beats", "w4", ms(time.Now()))
		}})
		r.sweep("routes")
		require.True(t, r.exists(p+"route:a", p+"route:c", p+"route:d", p+"route:e", p+"route:f"))
		require.False(t, r.exists(p+"route:b"))
		require.ElementsMatch(t, []string{"a", "c", "d", "e", "f", "g"}, r.rdb.HKeys(t.Context(), p+"presence").Val())
	})
}

// What a deleted user leaves says nothing about a user who signs up under that name. Such rules
// cannot have related: its refusal says how to write these.
func TestKeysOfAUserWhoSignsUpAgainStay(t *testing.T) {
	s := redistest.Start(t)
	all, err := rules.Parse([]byte(`rules:
- {name: users, delete: true, keys: "user:{user}", read: hash, gone_if: {value: {field: .status, in: [deleted]}}}
- name: parts
  delete: true
  keys: "user:{user}:{part}"
  keep_if: [{exists: "user:{user}"}]
  unless_lost: [{exists: up}]
  grace: 24h
`))
	require.NoError(t, err)
	r := newRig(t, s.Options(), "{cleanup}:", nil, all...)
	r.do("SET", "up", 1)
	r.do("HSET", "user:ann", "status", "deleted")
	r.do("HSET", "user:eve", "status", "deleted")
	r.do("SET", "user:ann:seen", 1)
	r.do("SET", "user:eve:seen", 1)
	require.Equal(t, 2, r.sweep("users").Removed)
	r.sweep("parts")
	r.pass("parts", 23*time.Hour)
	r.do("SET", "user:ann:prefs", 1) // before the address is confirmed
	require.Equal(t, map[string]int{waiting: 3}, r.sweep("parts").Kept)
	r.do("HSET", "user:ann", "status", "active")
	r.pass("parts", time.Hour)
	r.sweep("parts")
	require.True(t, r.exists("user:ann", "user:ann:seen", "user:ann:prefs"))
	require.False(t, r.exists("user:eve:seen"))
}
