package chaos

import (
	"net"
	"os/exec"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// procedureRows are what operators do with Redis, step by step by docs/operate.md.
var procedureRows = []row{
	{46, "RedisUpgradedByPromotion", false, 60, nil, under(&upgraded{}, nothingWent)},
	{46, "MovedToAnotherRedis", false, 60, nil,
		under(&moved{}, func(w *environment, v *judge.Verdict) {
			nothingWent(w, v)
			require.Contains(w, reasonsOf(v), "gap", "for longer than GAP nobody could write to either server")
		})},
}

// grace is how long Redis has to be listened to before anything is deleted.
const grace = harness.TTL + 2*time.Second

// upgraded promotes a replica of a newer version that lacks nothing.
type upgraded struct{ failover }

func (f *upgraded) setup(w *environment) {
	newer := "" // the same again, if it is no Redis 7
	if strings.HasPrefix(harness.InfoOf(w, w.Client, "Server", "redis_version"), "7.0.") {
		path, err := exec.CommandContext(w.Context(), "../scripts/redis", "8").Output()
		require.NoError(w, err, "no Redis 8")
		newer = strings.TrimSpace(string(path))
	}
	f.replica = redistest.StartNamed(w.T, newer)
	follow(w, f.replica)
}

// follow has a server copy the present one, and waits until the present one too says that it does.
func follow(w *environment, next *redistest.Server) {
	host, port, err := net.SplitHostPort(w.Server.Addr())
	require.NoError(w, err)
	require.NoError(w, next.Client().ReplicaOf(w.Context(), host, port).Err())
	harness.Eventually(w, "the replica follows", func() bool {
		return strings.Contains(harness.InfoOf(w, w.Client, "Replication", "slave0"), "state=online")
	})
}

func (f *upgraded) fail(w *environment) {
	release := harness.HoldAll(w.Proxies)
	back := w.Outage("")
	c := f.replica.Client()
	harness.Eventually(w, "the replica has all of it", func() bool {
		return harness.InfoOf(w, c, "Replication", "master_repl_offset") ==
			harness.InfoOf(w, w.Client, "Replication", "master_repl_offset")
	})
	before := harness.InfoOf(w, w.Client, "Server", "redis_version")
	had := w.entries()
	f.promote(w)
	require.Equal(w, had, w.entries(), "nothing is lost")
	w.remark("%s was promoted in place of %s", harness.InfoOf(w, w.Client, "Server", "redis_version"),
		before)
	f.hit(1)
	release()
	back()
	w.raised("restarted")
	w.heals(time.Now())
}

// moved hands the registry to another server, and then tells one replica after the other where it
// is. Those that still ask the former one may not write.
type moved struct {
	calm
	next *redistest.Server
}

func (f *moved) setup(w *environment) { f.next = redistest.Start(w.T) }

func (f *moved) fail(w *environment) {
	ctx := w.Context()
	former := w.Client
	follow(w, f.next)
	w.Meddle("paused", func(p redis.Pipeliner) {
		p.Set(ctx, w.Layout.Paused(), `{"who":"ann","why":"move"}`, time.Hour)
	})
	back := w.Outage("")
	release := harness.HoldAll(w.Proxies)
	host, port, err := net.SplitHostPort(f.next.Addr())
	require.NoError(w, err)
	require.NoError(w, former.Do(ctx, "FAILOVER", "TO", host, port, "TIMEOUT", 30_000).Err())
	harness.Eventually(w, "the former follows the next", func() bool {
		return harness.InfoOf(w, former, "Replication", "role") == "slave" &&
			harness.InfoOf(w, f.next.Client(), "Replication", "role") == "master"
	})
	// What the former copies from now on is the next one's history.
	require.NoError(w, former.ConfigSet(ctx, "appendonly", "no").Err())
	w.CountersBeginAnew(func() { w.NextLife(f.next) })
	w.Client = f.next.Client()
	release()
	refused := func() string { return harness.InfoOf(w, former, "Errorstats", "errorstat_READONLY") }
	harness.Eventually(w, "the former refuses to be written to", func() bool { return refused() != "" })
	f.hit(1)
	harness.Lasting(gap)

	for range 3 {
		old := w.Replicas()[0]
		w.Terminate(old) // its goodbye cannot be written
		w.Start(old.ID)
	}
	w.Spread(w.lost())
	back()
	w.Meddle("resumed", func(p redis.Pipeliner) { p.Del(ctx, w.Layout.Paused()) })
	require.Equal(w, "slave", harness.InfoOf(w, former, "Replication", "role"))
	w.heals(time.Now())
}

// lost are silent devices that have no socket.
func (w *environment) lost() (which []int) {
	for i := 0; i < w.Fleet.Len(); i += 2 {
		if w.Fleet.At(i) == "" {
			which = append(which, i)
		}
	}
	return which
}
