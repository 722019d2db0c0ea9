package orphan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// fill makes a key of more elements than are compared whole. In Lua, as there are many.
const fill = `for i = 1, ARGV[2] do
  if ARGV[1] == 'HSET' then redis.call('HSET', KEYS[1], 'm' .. i, i)
  elseif ARGV[1] == 'XADD' then redis.call('XADD', KEYS[1], i .. '-1', 'f', i)
  else redis.call(ARGV[1], KEYS[1], 'm' .. i) end
end`

func (r *rig) fill(command, key string, n int) {
	r.Helper()
	r.do("EVAL", fill, 1, r.p+key, command, n)
}

// What keeps a candidate, by the first look.
func TestWhatASignTells(t *testing.T) {
	for _, c := range []struct{ name, rules, state, want string }{
		{"what is no hash is unreadable also where no field is read", session + "  read: hash\n", `
			SADD P:session:set a
			SET P:session:text a
			HSET P:session:hash a 1`, "2 unreadable, 1 waiting"},
		{"a value of another type than the rule's", session + "  type: hash\n", "SET P:session:a 1", "1 foreign"},
		{"the empty text is a value; a field that is missing, or holds what is none, is not", `
- {name: sessions, keys: "P:session:{id}", read: json, gone_if: {value: {field: .end, in: ["", "true"]}}}`, `
			SET P:session:a {}
			SET P:session:b {"end":null}
			SET P:session:c {"end":{}}
			SET P:session:d {"end":[""]}
			SET P:session:e {"end":1.5}
			SET P:session:f {"end":"\ud800"}
			SET P:session:runs {"end":false}
			SET P:session:empty {"end":""}
			SET P:session:over {"end":true}`, "1 alive, 2 removed, 6 unreadable"},
		{"a time may be written in any way", session + "  read: json\n  min_age: {field: .at, unit: ms, over: 1h}\n", `
			SET P:session:a {"at":1.6e12}
			SET P:session:b {"at":1600000000000.5}
			SET P:session:c {"at":"1600000000000"}
			SET P:session:d {"at":1600000000000}
			SET P:session:none {"at":true}`, "1 unreadable, 4 waiting"},
		{"a stream beyond the bound", session, "", "1 large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onReal(t, c.rules, func(r *rig) {
				if r.run(c.state); c.state == "" {
					r.fill("XADD", "session:a", 1300)
					for i := range 65 {
						r.do("XGROUP", "CREATE", r.p+"session:a", i, "0")
					}
				}
				r.swept("sessions", c.want)
			})
		})
	}
}

// A document that states that it is not over has no other field that could say more; and absence is
// no evidence: a sign of life that misses a field is not refuted by another one.
func TestWhatADocumentTells(t *testing.T) {
	t.Run("of an end", func(t *testing.T) {
		onReal(t, matches, func(r *rig) {
			r.source.all = map[string]Document{
				matchID(1): {"status": "ongoing"},
				matchID(2): {"status": "ongoing", "endedAt": time.Time{}},
				matchID(3): {"endedAt": time.Now()}, // its status is missing, and it has just ended
				matchID(4): {"status": "finished"},  // when is not known
				matchID(5): {},
			}
			for i := range 5 {
				r.run("SET P:match:" + matchID(i+1) + " {}")
			}
			r.swept("matches", "3 alive, 2 unknown")
		})
	})
	t.Run("of a life", func(t *testing.T) {
		onReal(t, `
- name: carts
  keys: "P:cart:{user}"
  keep_if: [{mongo: {collection: users, id: "{user}", all: [{field: state, in: [active]}, {field: plan, in: [paid]}]}}]
`, func(r *rig) {
			r.source.all = map[string]Document{
				"ann": {"state": "away"},
				"bob": {"state": "away", "plan": "free"},
				"eve": {"state": "active", "plan": "paid"},
			}
			for user := range r.source.all {
				r.run("SET P:cart:" + user + " 1")
			}
			r.swept("carts", "1 alive, 1 unknown, 1 waiting")
		})
	})
}

func TestATimeThatStandsForNoneIsNoStatement(t *testing.T) {
	t.Parallel()
	now := time.Now()
	before := rules.Condition{Field: "at", Before: time.Hour}
	for _, at := range []any{
		time.Time{}, time.UnixMilli(0), time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
		int64(0), "1970-01-01",
	} {
		is, known := holds(before, Document{"at": at}, now)
		require.False(t, is || known, at)
	}
	is, known := holds(before, Document{"at": now.Add(-2 * time.Hour)}, now)
	require.True(t, is && known)
	is, known = holds(before, Document{"at": now}, now)
	require.True(t, !is && known)
}

// A deployment writes a shorter expiry than the rule says: what is new looks old.
func TestAnAgeFromAnExpiryHasToBeSeen(t *testing.T) {
	onReal(t, session+"  min_age: {from_ttl: 1h, over: 10m}\n", func(r *rig) {
		r.run("SET P:session:a 1 EX 600")
		r.swept("sessions", "1 young")
		r.pass("sessions", 9*time.Minute)
		r.swept("sessions", "1 young")
		r.pass("sessions", time.Minute)
		r.swept("sessions", "1 removed")
	})
}

func TestAStreamThatIsWorkedOnStays(t *testing.T) {
	onReal(t, session+"  bin: 1h\n", func(r *rig) {
		for _, name := range []string{"idle", "acked", "polled", "grouped"} {
			r.fill("XADD", "session:"+name, 1300)
			r.run("XGROUP CREATE P:session:" + name + " workers 0")
		}
		r.run("XREADGROUP GROUP workers one COUNT 1 STREAMS P:session:polled >")
		require.Equal(r, 3, r.sweep("sessions").Condemned, "one was read just now")
		r.pass("sessions", time.Minute)
		r.run(`XGROUP CREATE P:session:grouped others 0
			XREADGROUP GROUP workers one COUNT 1 NOACK STREAMS P:session:acked >`)
		require.Equal(r, 1, r.sweep("sessions").Removed)
		r.gone("P:session:idle")
	})
}

// Fields of hashes can expire on Redis 7.4 and newer, and on Valkey 9.
func TestTheExpiryOfAFieldIsPartOfWhatItIs(t *testing.T) {
	expires := func(r *rig) {
		r.run("HSET P:members ann 1 bob 1 cyd 1")
		if r.rdb.Do(r.Context(), "HPEXPIRE", r.p+"members", 600_000, "FIELDS", 2, "ann", "bob").Err() != nil {
			r.Log("no field expires on this server: scripts/redis 8 finds or fetches one")
			return
		}
		r.fill("HSET", "session:large", 1300)
		r.run("HSET P:session:small m650 1 other 1")
		refresh := func(ms string) {
			r.run(strings.ReplaceAll(`HPEXPIRE P:session:large MS FIELDS 1 m650
				HPEXPIRE P:session:small MS FIELDS 1 m650
				HPEXPIRE P:members MS FIELDS 1 ann`, "MS", ms))
		}
		refresh("600000")
		r.ripen("", time.Minute)
		refresh("900000")
		require.Zero(r, r.sweep("sessions").Removed)
		require.Equal(r, 2, r.result("members").Removed)
		require.Equal(r, map[string]string{"ann": "1"}, r.rdb.HGetAll(r.Context(), r.p+"members").Val())

		bins := Bins{Client: r.rdb, Layout: r.layout}
		binned, err := bins.List(r.Context(), "members")
		require.NoError(r, err)
		for _, b := range binned {
			_, err := bins.Restore(r.Context(), b.ID)
			require.NoError(r, err)
		}
		left, err := r.rdb.HPTTL(r.Context(), r.p+"members", "bob", "cyd").Result()
		require.NoError(r, err)
		require.Greater(r, left[0], int64(500_000))
		require.Equal(r, int64(-1), left[1])
	}
	yaml := session + `
- {name: members, members: {hash: "P:members", as: user}, keep_if: [{exists: "P:user:{user}"}], grace: 1m, bin: 1h}
`
	onReal(t, yaml, expires)
	t.Run("newest", func(t *testing.T) {
		expires(newRig(t, redistest.World{Prefix: "{cleanup}:", Options: redistest.StartNewest(t).Options()}, yaml, config{plain: true}))
	})
}

// A worker's key that has lost its expiry stays for ever, unless somebody still writes it.
func TestWhatIsUnchangedAndWithoutExpiryGoesAfterItsGrace(t *testing.T) {
	onReal(t, `- {name: replies, keys: "P:reply:{client}", type: list, gone_if: {no_expiry: true}, grace: 1h}`, func(r *rig) {
		r.run(`RPUSH P:reply:dead 1
			RPUSH P:reply:busy 1
			RPUSH P:reply:late 1
			RPUSH P:reply:ends 1
			PEXPIRE P:reply:ends 3600000`)
		r.swept("replies", "1 alive, 3 waiting")
		r.pass("replies", time.Hour)
		r.run("RPUSH P:reply:busy 2")
		r.before(goes, "PEXPIRE P:reply:late 3600000")
		r.sweep("replies")
		r.there("P:reply:busy P:reply:late P:reply:ends")
		r.gone("P:reply:dead")
	})
}

func TestAFieldThatIsMissingIsEvidence(t *testing.T) {
	onReal(t, `
- {name: ghosts, keys: "P:job:{id}", read: hash, gone_if: {missing: .created_at}, grace: 1h}
- {name: texts, keys: "P:text:{id}", read: json, gone_if: {missing: .owner.id}, grace: 1h}
`, func(r *rig) {
		r.run(`HSET P:job:ghost last_heartbeat now
			HSET P:job:saved last_heartbeat now
			HSET P:job:whole created_at 2026
			SET P:job:other text
			SET P:text:without {"owner":{}}
			SET P:text:null {"owner":{"id":null}}
			SET P:text:odd {"owner":"ann"}
			SET P:text:none []`)
		r.do("HSET", r.p+"job:empty", "created_at", "")
		r.swept("ghosts", "2 alive, 1 unreadable, 2 waiting")
		r.found("texts", "2 alive, 1 unreadable, 1 waiting")
		r.pass("", time.Hour)
		r.before("evalsha P:job:saved", "HSET P:job:saved created_at 2026")
		r.sweep("ghosts")
		r.gone("P:job:ghost P:text:without")
		r.there("P:job:saved P:job:whole P:job:empty P:job:other P:text:null P:text:odd P:text:none")
	})
}

// An owner's name is the whole value of a key, or of a field of a hash; its heartbeat is a field.
func TestAWholeValueNamesTheOwner(t *testing.T) {
	onReal(t, `
- name: routes
  keys: "P:route:{conn}"
  read: text
  bind: {worker: .}
  keep_if: [{field: {hash: "P:beats", field: "{worker}", unit: ms, within: 1m}}]
  unless_lost: [{exists: "P:beats"}]
- name: presence
  members: {hash: "P:presence", as: user}
  read: json
  bind: {worker: .node}
  keep_if: [{field: {hash: "P:beats", field: "{worker}", unit: ms, within: 1m}}]
  unless_lost: [{exists: "P:beats"}]
`, func(r *rig) {
		r.run("HSET P:beats w1 @ms-0s w2 @ms-1h w3 soon w4 @ms-1h")
		for conn, worker := range map[string]string{"a": "w1", "b": "w2", "c": "w3", "d": "w4", "e": "", "f": "w9"} {
			r.do("SET", r.p+"route:"+conn, worker)
			r.do("HSET", r.p+"presence", conn, `{"node": "`+worker+`"}`)
		}
		r.run("HSET P:presence g w2")
		r.swept("routes", "1 alive, 1 unknown, 1 unreadable, 3 waiting")
		r.found("presence", "1 alive, 1 unknown, 2 unreadable, 3 waiting")
		r.pass("", rules.DefaultGrace)
		r.run(`HSET P:presence f {"node":"w4"}
			SET P:route:f w4`)
		r.before(goes, "HSET P:beats w4 @ms-0s")
		r.sweep("routes")
		r.there("P:route:a P:route:c P:route:d P:route:e P:route:f P:presence/a P:presence/c P:presence/d P:presence/e P:presence/f P:presence/g")
		r.gone("P:route:b P:presence/b")
	})
}

// What a deleted user leaves says nothing about a user who signs up under that name. Such rules
// cannot have related: its refusal says how to write these.
func TestKeysOfAUserWhoSignsUpAgainStay(t *testing.T) {
	t.Parallel()
	r := alone(t, `
- {name: users, keys: "user:{user}", read: hash, gone_if: {value: {field: .status, in: [deleted]}}}
- {name: parts, keys: "user:{user}:{part}", keep_if: [{exists: "user:{user}"}], unless_lost: [{exists: up}], grace: 24h}
`)
	r.run(`SET up 1
		HSET user:ann status deleted
		HSET user:eve status deleted
		SET user:ann:seen 1
		SET user:eve:seen 1`)
	r.swept("users", "2 removed")
	r.ripen("parts", 23*time.Hour)
	r.run("SET user:ann:prefs 1") // before the address is confirmed
	r.swept("parts", "3 waiting")
	r.run("HSET user:ann status active")
	r.pass("parts", time.Hour)
	r.sweep("parts")
	r.there("user:ann user:ann:seen user:ann:prefs")
	r.gone("user:eve:seen")
}

// jobs is a rule about hashes of jobs, which live in one of two lists.
const jobs = `
- name: jobs
  keys: "P:job:{id}"
  type: hash
  only: {id: integer}
  keep_if: [{member: {list: "P:wait", of: "{id}"}}, {member: {list: "P:active", of: "{id}"}}]
`

func TestAnElementOfAListIsASignOfLife(t *testing.T) {
	onReal(t, jobs, func(r *rig) {
		for i := range 4 {
			r.do("HSET", fmt.Sprintf("%sjob:%d", r.p, i), "data", "{}")
		}
		r.run(`RPUSH P:wait 0 10 7
			RPUSH P:active 1`)
		r.swept("jobs", "2 alive, 2 waiting")
		r.pass("jobs", rules.DefaultGrace)
		r.before(goes, "RPUSH P:active 2")
		r.sweep("jobs")
		r.there("P:job:0 P:job:1 P:job:2") // 2 has come into a list after the last look
		r.gone("P:job:3")
	})
}

func TestAListThatCannotTellKeeps(t *testing.T) {
	onReal(t, jobs, func(r *rig) {
		r.run(`HSET P:job:0 data {}
			HSET P:job:1 data {}
			RPUSH P:wait 0`)
		r.fill("RPUSH", "wait", 10_000)
		r.swept("jobs", "1 alive, 1 unknown") // one element too many
		r.run("RPOP P:wait")
		r.swept("jobs", "1 alive, 1 waiting")
		r.pass("jobs", rules.DefaultGrace)
		r.before(goes, "RPUSH P:wait more 1")
		r.swept("jobs", "1 alive, 1 changed") // the list has grown after the last look
		r.there("P:job:1")
		r.run(`DEL P:wait P:active
			SADD P:active 5`)
		r.swept("jobs", "2 unknown") // it is no list
	})
}

// A member is a worker's host and pid, and its queues; its sign of life has no queues.
func TestAMemberOfSeveralParts(t *testing.T) {
	onReal(t, `
- name: workers
  members: {set: "P:workers", as: "{host}:{pid}:{queues}"}
  only: {pid: integer}
  keep_if: [{exists: "P:ping:{host}:{pid}"}]
  related: ["P:started:{host}:{pid}:{queues}"]
`, func(r *rig) {
		r.run(`SADD P:workers web:1:mail web:2:mail,pay web:3:mail web:old web:x:mail web:1:a:b
			SET P:ping:web:1 1
			SET P:started:web:2:mail,pay 1
			SET P:started:web:1:mail 1
			SET P:started:web:4:mail 1`) // the last is without its member
		r.swept("workers", "1 alive, 3 foreign, 2 waiting")
		r.pass("workers", rules.DefaultGrace)
		r.run("SET P:ping:web:3 1")
		r.rounds(2, rules.DefaultGrace)
		r.there("P:workers/web:1:mail P:workers/web:3:mail P:workers/web:old P:workers/web:x:mail P:workers/web:1:a:b P:started:web:1:mail")
		r.gone("P:workers/web:2:mail,pay P:started:web:2:mail,pay P:started:web:4:mail")
	})
}

// One rule is about the finished jobs of all queues. What a queue relies on is asked for each.
func TestMembersOfManyKeys(t *testing.T) {
	onReal(t, `
- name: done
  members: {zset: "P:q:{queue}:done", as: job}
  only: {job: integer}
  keep_if: [{exists: "P:q:{queue}:{job}"}]
  unless_lost: [{exists: "P:q:{queue}:id"}]
  related: ["P:q:{queue}:{job}:logs"]
  bin: 1h
`, func(r *rig) {
		for i := range 3 {
			r.run(strings.ReplaceAll(`ZADD P:q:N:done 1 1 2 2
				SET P:q:N:id 2
				SET P:q:N:1 job
				RPUSH P:q:N:2:logs line`, "N", fmt.Sprint(i)))
		}
		r.do("ZADD", r.p+"q:a b:done", 1, "2")
		r.run(`SET P:q:0:2 job
			DEL P:q:2:id
			SADD P:q:set:done 2
			RPUSH P:q:1:9:logs line`) // the last is without its member
		r.swept("done", "4 alive, 1 unknown, 1 waiting")
		r.pass("done", rules.DefaultGrace)
		found, err := r.set.Explain(r.Context(), r.p+"q:1:done 2")
		require.NoError(r, err)
		require.Equal(r, []string{r.p + "q:1:done 2", condemned}, []string{found[0].Name, found[0].Verdict})
		require.Equal(r, 1, r.sweep("done").Removed)
		r.rounds(2, rules.DefaultGrace)
		r.there("P:q:1:done/1 P:q:2:done/1 P:q:2:done/2 P:q:0:2:logs P:q:set:done") // what it relies on is lost
		require.Equal(r, int64(1), r.rdb.ZCard(r.Context(), r.p+"q:a b:done").Val())
		r.gone("P:q:1:done/2 P:q:1:2:logs P:q:1:9:logs")
	})
}

func TestWhatACandidateReliesOnIsAskedAgainAtTheDelete(t *testing.T) {
	onReal(t, `
- name: jobs
  keys: "P:q:{queue}:{job}"
  type: hash
  not: {job: [id, meta]}
  keep_if: [{member: {zset: "P:q:{queue}:done", of: "{job}"}}, {member: {list: "P:q:{queue}:wait", of: "{job}"}}]
  unless_lost: [{exists: "P:q:{queue}:id"}]
`, func(r *rig) {
		for _, queue := range []string{"a", "b"} {
			r.run(strings.ReplaceAll(`SET P:q:N:id 3
				HSET P:q:N:meta v 1
				ZADD P:q:N:done 1 uuid-1
				RPUSH P:q:N:wait uuid-2
				HSET P:q:N:uuid-1 v 1
				HSET P:q:N:uuid-2 v 1
				HSET P:q:N:uuid-3 v 1`, "N", queue))
		}
		r.swept("jobs", "4 alive, 8 foreign, 2 waiting")
		r.pass("jobs", rules.DefaultGrace)
		r.before(goes, "DEL P:q:a:id")
		r.swept("jobs", "4 alive, 1 changed, 8 foreign, 1 removed")
		r.there("P:q:a:uuid-3 P:q:a:meta P:q:b:meta P:q:b:uuid-1 P:q:b:uuid-2")
		r.gone("P:q:b:uuid-3")
	})
}

func TestANameThatBeginsWithAVariable(t *testing.T) {
	t.Parallel()
	w := redistest.World{Options: redistest.Start(t).Options()}
	r := newRig(t, w, session+`
- {name: replies, keys: "{client}.reply.pidbox", only: {client: uuid}, gone_if: {no_expiry: true}, grace: 1h}
`, config{plain: true})
	r.run(`RPUSH 123e4567-e89b-12d3-a456-426614174000.reply.pidbox 1
		RPUSH celery.reply.pidbox 1
		RPUSH 123e4567-e89b-12d3-a456-426614174000 1
		SET session:a 1`)
	r.rounds(1, time.Hour)
	r.gone("123e4567-e89b-12d3-a456-426614174000.reply.pidbox session:a")
	r.there("123e4567-e89b-12d3-a456-426614174000 celery.reply.pidbox")
}

func TestJSONThatIsNoneIsUnreadable(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{"id":"a"}}`, `{"id":"a"}]`, `{"id":"a"} x`, `{"id":"a"}{}`, "{\"id\":\"\xff\"}", `{"id":"\ud800"}`,
		`{"id":1e3}`, `{"id":1.0}`, `{"id":-0}`,
	} {
		read, _ := textOf(fieldsOf(readJSON(text), "id")["id"])
		require.Empty(t, read, text)
	}
	read, _ := textOf(fieldsOf(readJSON(`{"id":9007199254740993} `), "id")["id"])
	require.Equal(t, "9007199254740993", read)
}

// A value may be of 4 MiB: what is remembered of 500 of them is not.
func TestOnlyWhatTheRuleReadsOfAValueIsRemembered(t *testing.T) {
	t.Parallel()
	object := readJSON(`{"id":"a","much":{"more":[1,2]},"player":{"id":7,"ok":true,"name":"` + strings.Repeat("x", longText+1) +
		`","deep":{"er":1}},"n":null}`)
	require.Equal(t, map[string]any{
		"id": "a", "much": nil, "player.id": json.Number("7"), "player.ok": true, "player.name": nil, "player.deep.er": json.Number("1"),
		"n": nil, "id.of": nil,
	}, fieldsOf(object, "id", "much", "player.id", "player.ok", "player.name", "player.deep.er", "n", "none.at.all", "id.of"))
}
