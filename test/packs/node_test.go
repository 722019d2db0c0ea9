//go:build packs

package packs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestBeeQueue(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, ctx, done := server.Client(), t.Context(), newFinished()
	start := func() *app {
		return startApp(t, done, nil, "node", "bee.mjs", library("bee-queue"), portOf(t, server))
	}
	client, live, other := start(), start(), start()
	live.do("work", nil)
	other.do("work", nil)
	var jobs []string
	for i := range 3 { // workers are killed under load; Bee-Queue gives their jobs to others
		jobs = append(jobs, client.do("add", map[string]any{"name": fmt.Sprint("load", i), "n": 50})...)
		other.kill()
		other = start()
		other.do("work", nil)
	}
	eventually(t, "all jobs run", func() bool { return done.all(jobs) })
	client.do("add", map[string]any{"name": "later", "n": 5, "delay": 3600_000})
	client.do("add", map[string]any{"name": "slow", "n": 5, "slow": true})
	eventually(t, "only the slow jobs are active", func() bool {
		return rdb.LLen(ctx, "bq:mail:active").Val() == 5 && rdb.LLen(ctx, "bq:mail:waiting").Val() == 0
	})
	// Somebody loses places of jobs.
	orphans, err := rdb.SPopN(ctx, "bq:mail:succeeded", 3).Result()
	require.NoError(t, err)
	failed, err := rdb.SPopN(ctx, "bq:mail:failed", 3).Result()
	require.NoError(t, err)
	orphans = append(orphans, failed...)
	require.Len(t, orphans, 6)
	all := rdb.HLen(ctx, "bq:mail:jobs").Val()

	w := startWorker(t, server, "bee-queue", apart)
	eventually(t, "all orphans go", func() bool {
		left := 0
		for _, job := range orphans {
			if rdb.HExists(ctx, "bq:mail:jobs", job).Val() {
				left++
			}
		}
		return left == 0
	})
	jobs = client.do("add", map[string]any{"name": "after", "n": 50})
	eventually(t, "all jobs run", func() bool { return done.all(jobs) })
	w.looks()
	require.Equal(t, all-6+50, rdb.HLen(ctx, "bq:mail:jobs").Val(), "and nothing else")
}

func TestNodeResque(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb, ctx, done := server.Client(), t.Context(), newFinished()
	start := func() *app {
		return startApp(t, done, nil, "node", "resque.mjs", library("node-resque"), portOf(t, server))
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	name := func(a *app) string { return fmt.Sprintf("%s:%d", host, a.p.PID()) }
	client, live, idle, atJob := start(), start(), start(), start()
	idle.do("work", nil)
	jobs := client.do("add", map[string]any{"name": "load", "n": 30})
	eventually(t, "all jobs run", func() bool { return done.all(jobs) })
	eventually(t, "the worker is at no job", func() bool {
		return rdb.Exists(ctx, "resque:worker:"+name(idle)+":mail").Val() == 0
	})
	idle.kill()
	atJob.do("work", nil)
	jobs = client.do("add", map[string]any{"name": "slow", "n": 1, "slow": true})
	eventually(t, "the slow job runs", func() bool { return done.all(jobs) })
	atJob.kill()
	live.do("work", nil)
	members := func() string { return strings.Join(rdb.SMembers(ctx, "resque:workers").Val(), " ") }
	require.Len(t, rdb.SMembers(ctx, "resque:workers").Val(), 3)

	orphans := []string{"resque:worker:ping:" + name(idle), "resque:worker:" + name(idle) + ":mail:started"}
	ping := func() string { return rdb.Get(ctx, "resque:worker:ping:"+name(live)).Val() }
	// One sweep takes what the next relies on.
	w := startWorker(t, server, "node-resque", 0)
	for _, gone := range []func() bool{
		func() bool { return rdb.Exists(ctx, orphans[1]).Val() == 0 },
		func() bool { return rdb.Exists(ctx, orphans[0]).Val() == 0 },
		func() bool { return !strings.Contains(members(), name(idle)) },
	} {
		w.goes("it stays", func() func() bool { return changes(ping) }, gone)
	}
	require.Contains(t, members(), name(live))
	require.Contains(t, members(), name(atJob), "only a Scheduler can put its job back")
	require.Equal(t, int64(3), rdb.Exists(ctx, "resque:worker:ping:"+name(live), "resque:worker:"+name(live)+":mail:started",
		"resque:worker:"+name(atJob)+":mail").Val())
	jobs = client.do("add", map[string]any{"name": "after", "n": 30})
	eventually(t, "all jobs run", func() bool { return done.all(jobs) })
}
