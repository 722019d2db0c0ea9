//go:build packs

package packs_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// lasting are the keys without an expiry that are no lists, and not the worker's own.
func lasting(t *testing.T, rdb *redis.Client) (keys []string) {
	t.Helper()
	ctx := t.Context()
	for _, key := range rdb.Keys(ctx, "*").Val() {
		own := strings.HasPrefix(key, layout.Prefix) || strings.HasPrefix(key, "orphan:bin:")
		if !own && rdb.PTTL(ctx, key).Val() == -1 && rdb.Type(ctx, key).Val() != "list" {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// goExactly has a worker delete these keys by the rules of a pack, and nothing else that lasts. The
// pack's times are as they are, so what is marked grows older by the test. Meanwhile beats has to
// report that what lives has shown it.
func goExactly(t *testing.T, server *redistest.Server, pack string, orphans []string, beats func() func() bool) *worker {
	t.Helper()
	rdb := server.Client()
	stays := lasting(t, rdb)
	stays = slices.DeleteFunc(stays, func(key string) bool { return slices.Contains(orphans, key) })
	w := startWorker(t, server, pack, 0)
	w.looks()
	require.Equal(t, int64(len(orphans)), rdb.Exists(t.Context(), orphans...).Val(), "not before their time")
	w.goes("orphans stay", beats, func() bool { return rdb.Exists(t.Context(), orphans...).Val() == 0 })
	is := lasting(t, rdb)
	for _, key := range stays {
		require.Contains(t, is, key)
	}
	t.Logf("%d orphans went, and %d keys that last stayed", len(orphans), len(stays))
	return w
}

// changes reports whether what f returns has changed since this was called.
func changes(f func() string) func() bool {
	was := f()
	return func() bool { return f() != was }
}

func TestRQ(t *testing.T) {
	t.Parallel()
	python := debian(t, "python3")
	server := redistest.Start(t)
	rdb, ctx, port, done := server.Client(), t.Context(), portOf(t, server), newFinished()
	work := func(name string) *app { return startApp(t, done, nil, python, "rq_app.py", "worker", port, name).up() }
	client := startApp(t, done, nil, python, "rq_app.py", "client", port)

	// Workers are killed under load.
	work("live")
	other := work("other")
	for i := range 3 {
		client.do("add", map[string]any{"name": fmt.Sprint("load", i), "n": 20})
		other.kill()
		other = work(fmt.Sprint("other", i))
	}
	eventually(t, "the queue is empty", func() bool { return rdb.LLen(ctx, "rq:queue:mail").Val() == 0 })

	// Redis evicts the keys of a worker and of its job, as maxmemory-policy volatile-lru and
	// allkeys-lru do. It writes them anew with its next heartbeat, without an expiry, and is killed
	// before the one after that.
	ghosts := []string{}
	for i := 0; len(ghosts) == 0; i++ {
		key := "rq:worker:" + fmt.Sprint("doomed", i)
		doomed := work(fmt.Sprint("doomed", i))
		eventually(t, "it beats", func() bool { return rdb.Exists(ctx, key).Val() == 1 })
		require.NoError(t, rdb.Del(ctx, key).Err())
		eventually(t, "it beats again", func() bool { return rdb.Exists(ctx, key).Val() == 1 })
		doomed.kill()
		if rdb.PTTL(ctx, key).Val() == -1 {
			ghosts = append(ghosts, key)
		}
	}
	slow := client.do("add", map[string]any{"name": "evicted", "n": 1, "seconds": 2})
	eventually(t, "the job runs", func() bool {
		return rdb.HGet(ctx, "rq:job:"+slow[0], "status").Val() == "started"
	})
	require.NoError(t, rdb.Del(ctx, "rq:job:"+slow[0]).Err())
	eventually(t, "it is over", func() bool { return done.all(slow) })
	eventually(t, "nobody works", func() bool { return rdb.HGet(ctx, "rq:worker:live", "state").Val() == "idle" })

	beats := func() string { return rdb.HGet(ctx, "rq:worker:live", "last_heartbeat").Val() }
	w := goExactly(t, server, "rq", ghosts, func() func() bool { return changes(beats) })

	jobs := client.do("add", map[string]any{"name": "after", "n": 20})
	eventually(t, "all jobs run", func() bool { return done.all(jobs) })
	w.looks()
	require.Equal(t, int64(1), rdb.Exists(ctx, "rq:worker:live").Val())
}

func TestCelery(t *testing.T) {
	t.Parallel()
	python := debian(t, "python3")
	server := redistest.Start(t)
	rdb, ctx, port, done := server.Client(), t.Context(), portOf(t, server), newFinished()
	work := func(name string) *app {
		return startApp(t, done, nil, python, "celery_app.py", "worker", port, name).up()
	}
	client := startApp(t, done, nil, python, "celery_app.py", "client", port)
	replies := func() []string { return rdb.Keys(ctx, "*.reply.celery.pidbox").Val() }

	// Workers are killed under load, and clients that have asked them something.
	work("live")
	other := work("other")
	for i := range 2 {
		client.do("add", map[string]any{"name": fmt.Sprint("load", i), "n": 20, "seconds": 0.1})
		other.kill()
		other = work(fmt.Sprint("other", i))
		asker := startApp(t, done, nil, python, "celery_app.py", "asker", port)
		<-asker.p.Done()
	}
	orphans := slices.DeleteFunc(replies(), func(key string) bool { return strings.HasPrefix(key, "_kombu") })
	require.Len(t, orphans, 2, "a reply queue of each client that died")

	jobs := client.do("add", map[string]any{"name": "meanwhile", "n": 20, "seconds": 0.1})
	goExactly(t, server, "celery", orphans, func() func() bool { return func() bool { return done.all(jobs) } })

	require.Contains(t, client.do("ask", nil), "live@test", "workers answer")
	jobs = client.do("add", map[string]any{"name": "after", "n": 20})
	eventually(t, "all tasks run", func() bool { return done.all(jobs) })
}

func TestSidekiq(t *testing.T) {
	t.Parallel()
	ruby := debian(t, "ruby")
	server := redistest.Start(t)
	rdb, ctx, done := server.Client(), t.Context(), newFinished()
	env := []string{"REDIS_PORT=" + portOf(t, server)}
	const run = `require "sidekiq/cli"; cli = Sidekiq::CLI.instance; cli.parse; cli.run`
	work := func() *app {
		return startApp(t, done, env, ruby, "-e", run, "--", "-r", "./sidekiq_app.rb", "-q", "default", "-c", "3").up()
	}
	client := startApp(t, done, env, ruby, "sidekiq_app.rb")
	busy := func() []string { return rdb.Keys(ctx, "*:workers").Val() }

	// Processes are killed under load. Sidekiq loses the jobs that they had.
	live, other := work(), work()
	for i := range 3 {
		client.do("add", map[string]any{"name": fmt.Sprint("load", i), "n": 20})
		other.kill()
		other = work()
	}
	client.do("add", map[string]any{"name": "long", "n": 6, "seconds": 600})
	of := func(a *app) (key string) {
		for _, key := range busy() {
			if strings.Contains(key, fmt.Sprintf(":%d:", a.p.PID())) {
				return key
			}
		}
		return ""
	}
	eventually(t, "both say what they do", func() bool { return of(live) != "" && of(other) != "" })
	// The expiry of what a killed process did is lost, and Sidekiq forgets the process.
	orphan, lives := of(other), of(live)
	other.kill()
	require.NoError(t, rdb.Persist(ctx, orphan).Err())
	process := strings.TrimSuffix(orphan, ":workers")
	require.NoError(t, rdb.Del(ctx, process).Err())
	require.NoError(t, rdb.SRem(ctx, "processes", process).Err())

	beat := func() string { return rdb.HGet(ctx, strings.TrimSuffix(lives, ":workers"), "beat").Val() }
	goExactly(t, server, "sidekiq", []string{orphan}, func() func() bool { return changes(beat) })
	require.Contains(t, busy(), lives)

	work()
	jobs := client.do("add", map[string]any{"name": "after", "n": 20})
	eventually(t, "all jobs run", func() bool { return done.all(jobs) })
}
