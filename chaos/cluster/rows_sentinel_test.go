package cluster

import (
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// behindSentinels starts a master with two replicas and three Sentinels. These and the replicas
// reach the master by the address that through returns for its own.
func behindSentinels(w *world, through func(addr string) string, args ...string) {
	args = append(append(history.AppendOnly(), "--repl-diskless-sync-delay", "0"), args...)
	m := redistest.Start(w.T, args...)
	at := through(m.Addr())
	host, port := hostPort(w, at)
	w.servers = []*redistest.Server{m}
	for range 2 {
		w.servers = append(w.servers, redistest.Start(w.T, append(args, "--replicaof", host+" "+port)...))
	}
	var addrs []string
	for _, s := range redistest.StartSentinels(w.T, 3, at, 2) {
		addrs = append(addrs, s.Addr())
	}
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: redistest.SentinelName, SentinelAddrs: addrs, ContextTimeoutEnabled: true,
	})
	w.Cleanup(func() { require.NoError(w, rdb.Close()) })
	w.rdb = rdb
	w.env = []string{envSentinels + "=" + strings.Join(addrs, ",")}
}

func threeSentinels(w *world) {
	behindSentinels(w, func(addr string) string { return addr })
	w.launch(w.env, w.row.replicas)
}

// leads waits until a replica leads, and returns it.
func (w *world) leads() (m *redistest.Server) {
	w.Helper()
	harness.Eventually(w, "a replica leads", func() bool {
		for _, s := range w.servers[1:] {
			if role(w, s) == "master" {
				m = s
			}
		}
		return m != nil
	})
	return m
}

func sentinelMasterKilled(w *world) {
	w.kill(w.someone())
	w.servers[0].Kill()
	w.leads()
	w.servers[0].Restart()
	harness.Eventually(w, "the former master follows", func() bool { return role(w, w.servers[0]) == "slave" })
}

// The links of a row with halves: of Sentinels, replicas and three of our replicas to the first
// master; and of two of our replicas, which go on there.
type halves struct{ ours, theirs *link }

func sentinelHalves(args ...string) func(w *world) {
	return func(w *world) {
		w.halves = &halves{}
		behindSentinels(w, func(addr string) string {
			w.halves.ours, w.halves.theirs = newLink(w, addr), newLink(w, addr)
			return w.halves.ours.Addr().String()
		}, args...)
		w.launch(w.env, 3)
		w.launch([]string{envServer + "=" + w.halves.theirs.Addr().String()}, 2)
	}
}

// Sentinels and three of our replicas lose the master; two of ours go on at it.
func sentinelSplit(w *world) {
	w.told.lost[w.servers[0].Addr()] = time.Now()
	sentinelSplitAndJudged(w)
}

// sentinelSplitAndJudged is the same, and what goes at the lost master is judged too.
func sentinelSplitAndJudged(w *world) {
	old := w.servers[0]
	w.mu.Lock()
	back := []func(){w.cutOff("r4"), w.cutOff("r5")}
	w.mu.Unlock()
	w.halves.ours.set(func(string) bool { return false })
	m := w.leads()
	w.kill("r3")
	harness.Lasting(3 * w.row.ttl)
	w.halves.ours.set(func(string) bool { return true })
	harness.Eventually(w, "the former master follows", func() bool { return role(w, old) == "slave" })
	w.halves.theirs.goes(m.Addr())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, is := range back {
		is()
	}
}
