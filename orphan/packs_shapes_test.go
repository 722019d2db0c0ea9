package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestThePackOfBullMQFitsItsQueues(t *testing.T) {
	s := redistest.Start(t)
	rdb := redis.NewClient(s.Options())
	t.Cleanup(func() { _ = rdb.Close() })
	do := func(args ...any) { require.NoError(t, rdb.Do(t.Context(), args...).Err()) }
	do("SET", "bull:mail:id", "3")
	do("HSET", "bull:mail:meta", "opts.maxLenEvents", "10000")
	do("XADD", "bull:mail:events", "*", "event", "added")
	do("RPUSH", "bull:mail:wait", "1")
	do("ZADD", "bull:mail:completed", ms(time.Now()), "2")
	for id := range 8 {
		do("HSET", fmt.Sprintf("bull:mail:%d", id), "name", "welcome")
	}
	set, err := New(Config{Rules: packRules(t, "bullmq"), Client: rdb})
	require.NoError(t, err)
	all, err := set.Plan(t.Context(), 3)
	require.NoError(t, err)
	for _, v := range all {
		require.Empty(t, v.Wrong, v.Rule)
		require.NotContains(t, fmt.Sprint(v.Cautions), "several types", v.Rule)
	}
}

// What BullMQ deletes with a job goes with it: nobody would find it without its hash.
func TestThePackOfBullMQTakesAllKeysOfAJob(t *testing.T) {
	s := redistest.Start(t)
	r := newRig(t, s.Options(), "{cleanup}:", nil, packRules(t, "bullmq")...)
	r.do("SET", "bull:mail:id", "9")
	r.do("HSET", "bull:mail:meta", "opts.maxLenEvents", "10000")
	long := time.Now().Add(-2 * time.Hour)
	r.do("HSET", "bull:mail:7", "name", "welcome", "finishedOn", ms(long))
	r.do("ZADD", "bull:mail:completed", ms(long), "8")
	r.do("ZADD", "bull:mail:failed", ms(long), "9")
	for _, job := range []string{"7", "8", "9"} {
		r.do("RPUSH", "bull:mail:"+job+":logs", "sent")
		r.do("SADD", "bull:mail:"+job+":dependencies", "bull:mail:70")
		r.do("HSET", "bull:mail:"+job+":processed", "bull:mail:71", "{}")
		r.do("HSET", "bull:mail:"+job+":failed", "bull:mail:72", "no")
		r.do("ZADD", "bull:mail:"+job+":unsuccessful", "1", "bull:mail:73")
	}
	r.rounds(3, time.Hour)
	require.ElementsMatch(t, []string{"bull:mail:id", "bull:mail:meta"}, r.rdb.Keys(t.Context(), "bull:*").Val())
}

func TestThePackOfSidekiqWantsASidekiq(t *testing.T) {
	s := redistest.Start(t)
	rules := packRules(t, "sidekiq")
	r := newRig(t, s.Options(), "{cleanup}:", nil, rules...)
	r.do("HSET", "tenant:42:monday:work", "a", "b")
	r.do("HSET", "project:12:build:workers", "a", "b")
	round := func() {
		r.sweep("")
		for _, rule := range rules {
			r.pass(rule.Name, time.Hour)
		}
		r.sweep("")
		r.sweep("")
	}
	round()
	require.True(t, r.exists("tenant:42:monday:work", "project:12:build:workers"))
	r.do("SET", "stat:processed", "1")
	round()
	require.True(t, r.exists("tenant:42:monday:work", "project:12:build:workers"), "they are not of a Sidekiq")
}

func TestThePackOfRQKeepsAJobThatAnotherClientWrote(t *testing.T) {
	s := redistest.Start(t)
	rules := packRules(t, "rq")
	r := newRig(t, s.Options(), "{cleanup}:", nil, rules...)
	r.do("HSET", "rq:job:a", "data", "x", "origin", "mail", "status", "queued")
	r.do("RPUSH", "rq:queue:mail", "a")
	r.do("HSET", "rq:job:ghost", "last_heartbeat", "2026", "status", "started")
	r.sweep("")
	for _, rule := range rules {
		r.pass(rule.Name, time.Hour)
	}
	r.sweep("")
	r.sweep("")
	require.True(t, r.exists("rq:job:a"))
	require.False(t, r.exists("rq:job:ghost"))
}
