package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func packRules(t *testing.T, name string) []rules.Rule {
	t.Helper()
	text, ok := rules.Pack(name)
	require.True(t, ok, name)
	rules, err := rules.Parse(text)
	require.NoError(t, err)
	return rules
}

// What the libraries of the packs write while they live, and what they leave.
func TestPacksByTheShapesOfTheirLibraries(t *testing.T) {
	s := redistest.Start(t)
	var rules []rules.Rule
	for _, name := range []string{"celery", "node-resque", "rq", "sidekiq", "spring-session"} {
		rules = append(rules, packRules(t, name)...)
	}
	r := newRig(t, s.Options(), "{cleanup}:", nil, rules...)
	dead, live := "123e4567-e89b-12d3-a456-426614174000", "123e4567-e89b-12d3-a456-426614174001"
	r.do("SADD", "_kombu.binding.celery.pidbox", "\x06\x16\x06\x16celery@web.celery.pidbox")
	r.do("RPUSH", dead+".reply.celery.pidbox", "{}")
	r.do("RPUSH", live+".reply.celery.pidbox", "{}")
	r.do("RPUSH", "celery", "{}")
	r.do("HSET", "rq:worker:ghost", "last_heartbeat", "2026")
	r.do("HSET", "rq:worker:alive", "birth", "2026")
	r.do("PEXPIRE", "rq:worker:alive", 480_000)
	r.do("HSET", "rq:job:ghost", "status", "started")
	r.do("HSET", "rq:job:alive", "data", "x", "status", "started")
	r.do("HSET", "web-1:7:0a1b2c3d4e5f:work", "tid", "{}")
	r.do("HSET", "web-1:8:0a1b2c3d4e5f:work", "tid", "{}")
	r.do("HSET", "web-1:8:0a1b2c3d4e5f", "busy", "1")
	r.do("HSET", "shop:open:today:work", "a", "b")
	r.do("HSET", "web-1:7:0a1b2c3d4e5f:workers", "tid", "{}")
	r.do("SADD", "processes", "web-1:8:0a1b2c3d4e5f")
	r.do("SET", "stat:processed", "5")
	for _, session := range []string{live, dead} {
		r.do("SADD", principal+"ann", session, `"`+session+`"`, "\xac\xed\x00\x05t\x00$"+session)
	}
	ghost := "123e4567-e89b-12d3-a456-426614174002"
	r.do("HSET", "spring:session:sessions:"+live, "creationTime", "1")
	r.do("HSET", "spring:session:sessions:"+ghost, "lastAccessedTime", "1")
	ping := func(worker string, ago time.Duration) {
		r.do("SET", "resque:worker:ping:"+worker, fmt.Sprintf(`{"time":%d,"name":"%s","queues":"mail"}`,
			time.Now().Add(-ago).Unix(), worker))
	}
	r.do("SADD", "resque:queues", "mail")
	for _, worker := range []string{"web:1", "web:2", "web:3"} { // alive; killed; killed at a job
		r.do("SADD", "resque:workers", worker+":mail")
		r.do("SET", "resque:worker:"+worker+":mail:started", "1")
		ping(worker, 3*time.Hour)
	}
	ping("web:1", 0)
	r.do("SADD", "resque:workers", "ruby:1:mail") // of a Resque that does not ping
	r.do("SET", "resque:worker:ruby:1:mail:started", "1")
	r.do("SET", "resque:worker:web:3:mail", "{}")
	r.sweep("")
	for _, rule := range rules {
		r.pass(rule.Name, time.Hour)
	}
	r.do("RPUSH", live+".reply.celery.pidbox", "{}")
	for range 5 { // what goes may have been a sign of life for the next
		r.sweep("")
		for _, rule := range rules {
			r.pass(rule.Name, 10*time.Minute)
		}
	}
	left := r.rdb.Keys(t.Context(), "*").Val()
	for _, key := range []string{dead + ".reply.celery.pidbox", "rq:worker:ghost", "rq:job:ghost", "web-1:7:0a1b2c3d4e5f:work",
		"web-1:7:0a1b2c3d4e5f:workers", "spring:session:sessions:" + ghost, "resque:worker:ping:web:2",
		"resque:worker:web:2:mail:started",
	} {
		require.NotContains(t, left, key)
	}
	require.True(t, r.exists("_kombu.binding.celery.pidbox", live+".reply.celery.pidbox", "celery", "rq:worker:alive",
		"rq:job:alive", "web-1:8:0a1b2c3d4e5f:work", "web-1:8:0a1b2c3d4e5f", "shop:open:today:work", "processes", "spring:session:sessions:"+live, "resque:worker:ping:web:1",
		"resque:worker:ping:web:3", "resque:worker:web:3:mail", "resque:worker:web:3:mail:started", "resque:worker:ruby:1:mail:started"), fmt.Sprint(left))
	require.ElementsMatch(t, []string{"web:1:mail", "web:3:mail", "ruby:1:mail"}, r.rdb.SMembers(t.Context(), "resque:workers").Val())
	require.ElementsMatch(t, []string{live, `"` + live + `"`, "\xac\xed\x00\x05t\x00$" + live},
		r.rdb.SMembers(t.Context(), principal+"ann").Val())
}
