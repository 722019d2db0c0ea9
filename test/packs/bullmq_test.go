//go:build packs

// Package packs_test runs the packs of rules beside the libraries they are for.
package packs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// state is what a queue's keys say: the names of what is an orphan, and all others.
func state(t *testing.T, rdb *redis.Client) (orphans, living []string) {
	t.Helper()
	ctx := t.Context()
	keys, err := rdb.Keys(ctx, "bull:*").Result()
	require.NoError(t, err)
	slices.Sort(keys)
	has := func(key string) bool { _, found := slices.BinarySearch(keys, key); return found }
	// The logs of a job go once it has gone. In this order a job comes before its logs.
	for _, key := range keys {
		parts := strings.Split(key, ":")
		queue := strings.Join(parts[:2], ":")
		orphan := false
		switch {
		case len(parts) == 4 && parts[3] == "logs" && parts[2] != "de":
			job := queue + ":" + parts[2]
			orphan = !has(job) || slices.Contains(orphans, job)
		case len(parts) == 3 && rdb.Type(ctx, key).Val() == "hash" && parts[2] != "meta":
			orphan = true
			for _, set := range []string{"completed", "failed", "delayed", "prioritized", "waiting-children"} {
				orphan = orphan && rdb.ZScore(ctx, queue+":"+set, parts[2]).Err() == redis.Nil
			}
			for _, list := range []string{"wait", "active", "paused"} {
				orphan = orphan && rdb.LPos(ctx, queue+":"+list, parts[2], redis.LPosArgs{}).Err() == redis.Nil
			}
		case len(parts) == 3 && (parts[2] == "completed" || parts[2] == "failed"):
			for _, job := range rdb.ZRange(ctx, key, 0, -1).Val() {
				if has(queue + ":" + job) {
					living = append(living, key+" "+job)
				} else {
					orphans = append(orphans, key+" "+job)
				}
			}
			continue
		}
		if orphan {
			orphans = append(orphans, key)
		} else if parts[2] != "stalled" && parts[2] != "stalled-check" { // they come and go
			living = append(living, key)
		}
	}
	return orphans, living
}

// of are the names that begin like this.
func of(begin string, names []string) (some []string) {
	for _, name := range names {
		if strings.HasPrefix(name, begin) {
			some = append(some, name)
		}
	}
	return some
}

// Exactly the orphans go while workers run, and the library goes on.
func TestBullMQAndBull(t *testing.T) {
	for _, c := range []struct{ library, program string }{
		{"bullmq-5.70", "bullmq.mjs"}, {"bullmq-6.7", "bullmq.mjs"}, {"bull", "bull.mjs"},
	} {
		t.Run(c.library, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			rdb, ctx := server.Client(), t.Context()
			done := newFinished()
			start := func() *app {
				return startApp(t, done, nil, "node", c.program, library(c.library), portOf(t, server))
			}

			allGo := func() {
				t.Helper()
				var left []string
				defer func() {
					if len(left) > 0 {
						t.Logf("left: %v", left)
					}
				}()
				eventually(t, "all orphans go", func() bool { left, _ = state(t, rdb); return len(left) == 0 })
			}

			// Workers are killed under load. BullMQ gives their jobs to others.
			app, one, two := start(), start(), start()
			one.do("work", nil)
			two.do("work", nil)
			var jobs []string
			for range 4 {
				jobs = append(jobs, app.do("add", map[string]any{"n": 50})...)
				two.kill()
				two = start()
				two.do("work", nil)
			}
			app.do("kinds", nil)
			app.do("add", map[string]any{"n": 1, "data": map[string]any{"slow": true}})
			eventually(t, "all jobs run", func() bool { return done.all(jobs) })
			quiet := func() bool {
				return rdb.LLen(ctx, "bull:mail:active").Val() == 1 && rdb.LLen(ctx, "bull:pay:active").Val() == 1 &&
					rdb.LLen(ctx, "bull:mail:wait").Val()+rdb.LLen(ctx, "bull:pay:wait").Val() == 0
			}
			eventually(t, "only the slow jobs are active", quiet)

			// Somebody loses entries, and hashes, of jobs that have finished.
			for _, queue := range []string{"bull:mail:", "bull:pay:"} {
				for _, set := range []string{"completed", "failed"} {
					left, err := rdb.ZRange(ctx, queue+set, 0, 1).Result()
					require.NoError(t, err)
					for i, job := range left { // removeOnFail may have left one alone
						if i == 0 {
							require.NoError(t, rdb.ZRem(ctx, queue+set, job).Err())
						} else {
							require.NoError(t, rdb.Del(ctx, queue+job).Err())
						}
					}
				}
			}
			orphans, living := state(t, rdb)
			require.GreaterOrEqual(t, len(orphans), 8, "hashes, entries, and their logs")
			w := startWorker(t, server, "bullmq", apart)
			allGo()
			_, left := state(t, rdb)
			require.Subset(t, left, living, "and nothing else") // a job may have written a line since
			binned := rdb.HLen(ctx, layout.Prefix+"orphan:binned:bullmq-jobs").Val()
			require.Positive(t, binned)
			t.Logf("%d orphans went, %d hashes with their logs among them, and %d living things stayed",
				len(orphans), binned, len(left))

			// It goes on, and the sweeps with it.
			jobs = app.do("add", map[string]any{"n": 100})
			eventually(t, "all jobs run", func() bool { return done.all(jobs) })
			eventually(t, "only the slow jobs are active", quiet)
			w.looks()
			allGo()
			_, left = state(t, rdb)
			require.Subset(t, left, of("bull:held:", living))
		})
	}
}
