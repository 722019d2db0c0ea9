package orphan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A reported is a leak that people reported of a library, the rule that they would write, and what
// goes. All else stays. The commands are in the form that the library writes; @ms-2h is a time.
type reported struct {
	name, rules string
	state       []string
	gone        []string // keys, and members after their key
}

// what is in the server, but for the worker's own keys.
func things(t *testing.T, rdb redis.UniversalClient) (all []string) {
	t.Helper()
	ctx := t.Context()
	for _, key := range rdb.Keys(ctx, "*").Val() {
		if strings.HasPrefix(key, "{cleanup}:") || strings.HasPrefix(key, asideBegin) {
			continue
		}
		var members []string
		switch rdb.Type(ctx, key).Val() {
		case "set":
			members = rdb.SMembers(ctx, key).Val()
		case "zset":
			members = rdb.ZRange(ctx, key, 0, -1).Val()
		case "hash":
			members = rdb.HKeys(ctx, key).Val()
		}
		all = append(all, rules.Spell(key))
		for _, member := range members {
			all = append(all, rules.Spell(key)+" "+rules.Spell(member))
		}
	}
	slices.Sort(all)
	return all
}

const principal = "spring:session:index:org.springframework.session.FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME:"

var reports = []reported{
	{"bee-queue 170: jobs that stand in no set or list", `
rules:
- name: jobs
  members: {hash: "bq:{queue}:jobs", as: job}
  keep_if:
  - member: {set: "bq:{queue}:succeeded", of: "{job}"}
  - member: {set: "bq:{queue}:failed", of: "{job}"}
  - member: {zset: "bq:{queue}:delayed", of: "{job}"}
  - member: {list: "bq:{queue}:waiting", of: "{job}"}
  - member: {list: "bq:{queue}:active", of: "{job}"}
  unless_lost: [{exists: "bq:{queue}:id"}]
`, []string{
		"SET bq:mail:id 7", "HSET bq:mail:jobs 1 {} 2 {} 3 {} 4 {} 5 {} ours {} lost {}", "SADD bq:mail:succeeded 1", "SADD bq:mail:failed 2",
		"ZADD bq:mail:delayed 1 3", "RPUSH bq:mail:waiting 4", "RPUSH bq:mail:active ours", "SADD bq:mail:stalling ours",
	}, []string{"bq:mail:jobs 5", "bq:mail:jobs lost"}},

	{"Spring Data Redis: entries of a repository's set", `
rules:
- name: rates
  members: {set: rate, as: id}
  keep_if: [{exists: "rate:{id}"}]
  related: ["rate:{id}:idx"]
`, []string{
		"HSET rate:1 _class x", "SADD rate 1 2 a:b", "SADD rate:userId:7 1 2", "SADD rate:1:idx rate:userId:7", "SADD rate:2:idx rate:userId:7",
	}, []string{"rate 2", "rate a:b", "rate:2:idx", "rate:2:idx rate:userId:7"}},

	{"one rule for the logs of many queues", `
rules:
- name: logs
  keys: "bull:{queue}:{job}:logs"
  only: {job: integer}
  keep_if: [{exists: "bull:{queue}:{job}"}]
`, []string{
		"HSET bull:q0:1 name a", "RPUSH bull:q0:1:logs x", "RPUSH bull:q1:1:logs x", "RPUSH bull:q2:1:logs x", "SET bull:q1:de:logs 1",
	}, []string{"bull:q1:1:logs", "bull:q2:1:logs"}},

	{"an owner's name is a whole value, and its heartbeat a key", `
rules:
- name: routes
  keys: "ws:routing:{conn}"
  read: text
  bind: {worker: .}
  keep_if: [{exists: "worker:{worker}:alive"}]
- name: presence
  members: {hash: presence, as: user}
  read: text
  bind: {worker: .}
  keep_if: [{exists: "worker:{worker}:alive"}]
`, []string{
		"SET worker:w1:alive 1", "SET ws:routing:a w1", "SET ws:routing:b w2", "HSET presence ann w1 bob w2", "HSET ws:routing:c a b",
	}, []string{"presence bob", "ws:routing:b"}},

	{"an owner is in a JSON value, and its heartbeat a time in a hash", `
rules:
- name: presence
  keys: "ws:pres:{conn}"
  read: json
  bind: {worker: .node}
  keep_if: [{field: {hash: heartbeats, field: "{worker}", unit: ms, within: 1m}}]
  unless_lost: [{exists: heartbeats}]
- name: echo
  keys: "echo:presence-{room}:members"
  read: json
  keep_if: [{exists: "worker:{room}"}]
`, []string{
		"HSET heartbeats w1 @ms-1s w2 @ms-1h", `SET ws:pres:a {"node":"w1"}`, `SET ws:pres:b {"node":"w2"}`, `SET ws:pres:c {"node":"w3"}`,
		"SET ws:pres:d w2", `SET echo:presence-1:members [{"user_id":1}]`, // a list of JSON: not read, and kept
	}, []string{"ws:pres:b", "ws:pres:c"}},

	{"BullMQ 3694: finished jobs that no set lists, with braces in the prefix", `
rules:
- name: finished
  keys: "{{bull}}:{queue}:{job}"
  not: {job: [id]}
  read: hash
  min_age: {field: .finishedOn, unit: ms, over: 1h}
  keep_if:
  - member: {zset: "{{bull}}:{queue}:completed", of: "{job}"}
  - member: {zset: "{{bull}}:{queue}:failed", of: "{job}"}
  unless_lost: [{exists: "{{bull}}:{queue}:id"}]
  related: ["{{bull}}:{queue}:{job}:logs"]
`, []string{
		"SET {bull}:mail:id 5", "HSET {bull}:mail:meta a b", "HSET {bull}:mail:1 finishedOn @ms-2h", "ZADD {bull}:mail:completed 1 1",
		"HSET {bull}:mail:2 finishedOn @ms-2h", "RPUSH {bull}:mail:2:logs x", "HSET {bull}:mail:3 finishedOn @ms-1m",
		"HSET {bull}:mail:4 timestamp @ms-2h", "RPUSH {bull}:mail:wait 4",
	}, []string{"{bull}:mail:2", "{bull}:mail:2 finishedOn", "{bull}:mail:2:logs"}},

	{"tasks that say in ISO 8601 when they were seen", `
rules:
- name: works
  keys: "work:{id}"
  read: hash
  min_age: {field: .seen, unit: iso, over: 1h}
  keep_if: [{exists: "connector:{id}"}]
`, []string{
		"HSET work:1 seen @iso-2h", "HSET work:2 seen @iso-1m", "HSET work:3 seen @iso-2h", "SET connector:3 1", "HSET work:4 seen never",
	}, []string{"work:1", "work:1 seen"}},

	{"an index of each team, and its boxes", `
rules:
- name: boxes
  members: {set: "sandbox:{team}:index", as: box}
  keep_if: [{exists: "sandbox:{team}:box:{box}"}]
`, []string{
		"SADD sandbox:a:index 1 2", "SADD sandbox:b:index 1", "SET sandbox:a:box:1 x",
	}, []string{"sandbox:a:index 2", "sandbox:b:index", "sandbox:b:index 1"}},
}

// Each leak that people reported is a rule that somebody writes after one page, and takes exactly
// what they meant.
func TestReportedLeaks(t *testing.T) {
	for _, c := range reports {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := alone(t, strings.TrimPrefix(c.rules, "\nrules:"))
			r.run(strings.Join(c.state, "\n"))
			before := things(t, r.rdb)
			r.rounds(5, time.Hour) // what one sweep takes may be a sign of life of another
			after := things(t, r.rdb)
			var gone []string
			for _, thing := range before {
				if !slices.Contains(after, thing) {
					gone = append(gone, thing)
				}
			}
			require.Equal(t, c.gone, gone, fmt.Sprint(after))
		})
	}
}
