package orphan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// pack returns the rules of packs.
func pack(t *testing.T, names ...string) (yaml string) {
	t.Helper()
	for _, name := range names {
		text, ok := rules.Pack(name)
		require.True(t, ok, name)
		_, list, _ := strings.Cut(string(text), "\nrules:\n")
		yaml += list
	}
	return yaml
}

// What the libraries of the packs write while they live, and what they leave.
func TestPacksByTheShapesOfTheirLibraries(t *testing.T) {
	t.Parallel()
	r := alone(t, pack(t, "celery", "node-resque", "rq", "sidekiq", "spring-session"))
	ids := strings.NewReplacer("DEAD", "123e4567-e89b-12d3-a456-426614174000", "LIVE", "123e4567-e89b-12d3-a456-426614174001",
		"GHOST", "123e4567-e89b-12d3-a456-426614174002", "ANN", principal+"ann", "JAVA", javaText)
	r.run(ids.Replace(`SADD _kombu.binding.celery.pidbox \x06\x16\x06\x16celery@web.celery.pidbox
		RPUSH DEAD.reply.celery.pidbox {}
		RPUSH LIVE.reply.celery.pidbox {}
		RPUSH celery {}
		HSET rq:worker:ghost last_heartbeat 2026
		HSET rq:worker:alive birth 2026
		PEXPIRE rq:worker:alive 480000
		HSET rq:job:ghost status started
		HSET rq:job:alive data x status started
		HSET web-1:7:0a1b2c3d4e5f:work tid {}
		HSET web-1:8:0a1b2c3d4e5f:work tid {}
		HSET web-1:8:0a1b2c3d4e5f busy 1
		HSET shop:open:today:work a b
		HSET web-1:7:0a1b2c3d4e5f:workers tid {}
		SADD processes web-1:8:0a1b2c3d4e5f
		SET stat:processed 5
		SADD ANN LIVE "LIVE" JAVALIVE DEAD "DEAD" JAVADEAD
		HSET spring:session:sessions:LIVE creationTime 1
		HSET spring:session:sessions:GHOST lastAccessedTime 1
		SADD resque:queues mail
		SADD resque:workers web:1:mail web:2:mail web:3:mail ruby:1:mail
		SET resque:worker:web:1:mail:started 1
		SET resque:worker:web:2:mail:started 1
		SET resque:worker:web:3:mail:started 1
		SET resque:worker:ruby:1:mail:started 1
		SET resque:worker:web:3:mail {}`)) // ruby is of a Resque that does not ping
	for worker, ago := range map[string]time.Duration{"web:1": 0, "web:2": 3 * time.Hour, "web:3": 3 * time.Hour} { // alive; killed; killed at a job
		r.do("SET", "resque:worker:ping:"+worker, fmt.Sprintf(`{"time":%d,"name":"%s","queues":"mail"}`,
			time.Now().Add(-ago).Unix(), worker))
	}
	r.ripen("", time.Hour)
	r.run(ids.Replace("RPUSH LIVE.reply.celery.pidbox {}"))
	r.rounds(5, 10*time.Minute) // what goes may have been a sign of life for the next
	r.gone(ids.Replace(`DEAD.reply.celery.pidbox rq:worker:ghost rq:job:ghost web-1:7:0a1b2c3d4e5f:work web-1:7:0a1b2c3d4e5f:workers
		spring:session:sessions:GHOST resque:worker:ping:web:2 resque:worker:web:2:mail:started ANN/DEAD ANN/"DEAD" ANN/JAVADEAD
		resque:workers/web:2:mail`))
	r.there(ids.Replace(`_kombu.binding.celery.pidbox LIVE.reply.celery.pidbox celery rq:worker:alive rq:job:alive
		web-1:8:0a1b2c3d4e5f:work web-1:8:0a1b2c3d4e5f shop:open:today:work processes spring:session:sessions:LIVE
		resque:worker:ping:web:1 resque:worker:ping:web:3 resque:worker:web:3:mail resque:worker:web:3:mail:started
		resque:worker:ruby:1:mail:started ANN/LIVE ANN/"LIVE" ANN/JAVALIVE resque:workers/web:1:mail resque:workers/web:3:mail
		resque:workers/ruby:1:mail`))
}

func TestThePackOfBullMQFitsItsQueues(t *testing.T) {
	t.Parallel()
	rdb := redistest.Start(t).Client()
	r := &rig{T: t, rdb: rdb}
	r.run(`SET bull:mail:id 3
		HSET bull:mail:meta opts.maxLenEvents 10000
		XADD bull:mail:events * event added
		RPUSH bull:mail:wait 1
		ZADD bull:mail:completed @ms-0s 2`)
	for id := range 8 {
		r.do("HSET", fmt.Sprintf("bull:mail:%d", id), "name", "welcome")
	}
	set, err := New(Config{Rules: parse(t, pack(t, "bullmq"), ""), Client: rdb})
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
	t.Parallel()
	r := alone(t, pack(t, "bullmq"))
	r.run(`SET bull:mail:id 9
		HSET bull:mail:meta opts.maxLenEvents 10000
		HSET bull:mail:7 name welcome finishedOn @ms-2h
		ZADD bull:mail:completed @ms-2h 8
		ZADD bull:mail:failed @ms-2h 9`)
	for _, job := range []string{"7", "8", "9"} {
		r.run(strings.ReplaceAll(`RPUSH bull:mail:JOB:logs sent
			SADD bull:mail:JOB:dependencies bull:mail:70
			HSET bull:mail:JOB:processed bull:mail:71 {}
			HSET bull:mail:JOB:failed bull:mail:72 no
			ZADD bull:mail:JOB:unsuccessful 1 bull:mail:73`, "JOB", job))
	}
	r.rounds(3, time.Hour)
	require.ElementsMatch(t, []string{"bull:mail:id", "bull:mail:meta"}, r.rdb.Keys(t.Context(), "bull:*").Val())
}

func TestThePackOfSidekiqWantsASidekiq(t *testing.T) {
	t.Parallel()
	r := alone(t, pack(t, "sidekiq"))
	r.run(`HSET tenant:42:monday:work a b
		HSET project:12:build:workers a b`)
	r.rounds(2, time.Hour)
	r.there("tenant:42:monday:work project:12:build:workers")
	r.run("SET stat:processed 1")
	r.rounds(2, time.Hour)
	r.there("tenant:42:monday:work project:12:build:workers") // they are not of a Sidekiq
}

func TestThePackOfRQKeepsAJobThatAnotherClientWrote(t *testing.T) {
	t.Parallel()
	r := alone(t, pack(t, "rq"))
	r.run(`HSET rq:job:a data x origin mail status queued
		RPUSH rq:queue:mail a
		HSET rq:job:ghost last_heartbeat 2026 status started`)
	r.rounds(2, time.Hour)
	r.there("rq:job:a")
	r.gone("rq:job:ghost")
}
