//go:build packs

// Package packs_test runs the packs of rules beside the libraries they are for.
package packs_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// patience is how long a test waits for what has to happen. It is no measure of anything.
const patience = 2 * time.Minute

// An app is one process on BullMQ: bullmq.mjs.
type app struct {
	t       *testing.T
	p       *process.Process
	answers chan json.RawMessage
	done    *finished
}

// finished are the jobs that processes have run.
type finished struct {
	mu   sync.Mutex
	jobs map[string]bool
}

func (d *finished) all(jobs []string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !slices.ContainsFunc(jobs, func(job string) bool { return !d.jobs[job] })
}

func startApp(t *testing.T, library string, server *redistest.Server, done *finished) *app {
	t.Helper()
	_, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	cmd := exec.Command("node", "bullmq.mjs", filepath.Join(os.Getenv("PACKS"), library), port)
	cmd.Env = append(os.Environ(), "NODE_ENV=production")
	p, err := process.Start(cmd, process.Options{Talk: true, Log: filepath.Join(t.TempDir(), "node.log")})
	require.NoError(t, err)
	a := &app{t: t, p: p, answers: make(chan json.RawMessage, 1), done: done}
	go a.listen()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s wrote:\n%s", library, p.Log())
		}
	})
	return a
}

func (a *app) listen() {
	defer close(a.answers)
	for a.p.Out.Scan() {
		var line struct {
			Op   string          `json:"op"`
			OK   json.RawMessage `json:"ok"`
			Done string          `json:"done"`
		}
		switch {
		case json.Unmarshal(a.p.Out.Bytes(), &line) != nil: // a library's own words
		case line.Op != "":
			a.answers <- line.OK
		default:
			a.done.mu.Lock()
			a.done.jobs[line.Done] = true
			a.done.mu.Unlock()
		}
	}
}

// do sends a command, and returns the names of the jobs that it has added.
func (a *app) do(op string, args map[string]any) (added []string) {
	a.t.Helper()
	request := map[string]any{"op": op}
	for name, value := range args {
		request[name] = value
	}
	line, err := json.Marshal(request)
	require.NoError(a.t, err)
	_, err = fmt.Fprintf(a.p.In, "%s\n", line)
	require.NoError(a.t, err)
	answer, ok := <-a.answers
	require.True(a.t, ok, "the process ended")
	if op == "add" {
		require.NoError(a.t, json.Unmarshal(answer, &added))
	}
	return added
}

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
func TestBullMQ(t *testing.T) {
	for _, library := range []string{"bullmq-5.70", "bullmq-6.7"} {
		t.Run(library, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			rdb, ctx := server.Client(), t.Context()
			done := &finished{jobs: map[string]bool{}}
			start := func() *app { return startApp(t, library, server, done) }
			eventually := func(what string, is func() bool) {
				t.Helper()
				require.Eventually(t, is, patience, 50*time.Millisecond, what)
			}

			allGo := func() {
				t.Helper()
				var left []string
				defer func() {
					if len(left) > 0 {
						t.Logf("left: %v", left)
					}
				}()
				eventually("all orphans go", func() bool { left, _ = state(t, rdb); return len(left) == 0 })
			}

			// Workers are killed under load. BullMQ gives their jobs to others.
			app, one, two := start(), start(), start()
			one.do("work", nil)
			two.do("work", nil)
			var jobs []string
			for range 4 {
				jobs = append(jobs, app.do("add", map[string]any{"n": 50})...)
				two.p.Kill()
				two = start()
				two.do("work", nil)
			}
			app.do("kinds", nil)
			app.do("add", map[string]any{"n": 1, "data": map[string]any{"slow": true}})
			eventually("all jobs run", func() bool { return done.all(jobs) })
			quiet := func() bool {
				return rdb.LLen(ctx, "bull:mail:active").Val() == 1 && rdb.LLen(ctx, "bull:pay:active").Val() == 1 &&
					rdb.LLen(ctx, "bull:mail:wait").Val()+rdb.LLen(ctx, "bull:pay:wait").Val() == 0
			}
			eventually("only the slow jobs are active", quiet)

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
			w := startWorker(t, server)
			allGo()
			_, left := state(t, rdb)
			require.Equal(t, living, left, "and nothing else")
			binned := rdb.HLen(ctx, "orphan:binned:bullmq-jobs").Val()
			require.Positive(t, binned)
			t.Logf("%d orphans went, %d hashes with their logs among them, and %d living things stayed",
				len(orphans), binned, len(left))

			// It goes on, and the sweeps with it.
			jobs = app.do("add", map[string]any{"n": 100})
			eventually("all jobs run", func() bool { return done.all(jobs) })
			eventually("only the slow jobs are active", quiet)
			w.looks()
			allGo()
			_, left = state(t, rdb)
			require.Equal(t, of("bull:held:", living), of("bull:held:", left))
		})
	}
}
