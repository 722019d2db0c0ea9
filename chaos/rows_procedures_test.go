package chaos

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
	{46, "BackupRestored", false, 60, nil, under(&backupRestored{}, goneTwice)},
	{46, "RedisUpgradedByPromotion", false, 60, nil, under(&upgraded{}, nothingWent)},
	{46, "MovedToAnotherRedis", false, 60, nil,
		under(&moved{}, func(w *environment, v *judge.Verdict) {
			nothingWent(w, v)
			require.Contains(w.T, reasonsOf(v), "gap", "for longer than GAP nobody could write to either server")
		})},
}

// backupRestored puts an older state back: an owner in it has died since and was swept, and one
// that lives is not in it.
type backupRestored struct {
	calm
	gone     string
	had      int // entries of gone when it died
	restored int // entries of gone that the backup brought back
}

func (*backupRestored) setup(w *environment) {
	w.Serve()
	w.Parts = nil
	w.NextLife(w.Server)
}

func (f *backupRestored) fail(w *environment) {
	ctx := w.T.Context()
	require.NoError(w.T, w.Save(ctx).Err())
	file := filepath.Join(w.Server.Dir(), "dump.rdb")
	backup, err := os.ReadFile(file)
	require.NoError(w.T, err)

	owner := w.Follower()
	f.gone = owner.ID
	f.had = int(w.SCard(ctx, w.Devices(f.gone)).Val())
	_, lost := w.Kill(owner)
	harness.Eventually(w.T, "its entries are swept", func() bool { return f.names(w) == 0 })
	joined := w.Start("four")
	require.NoError(w.T, w.Fleet.ConnectAll(ctx, lost, func(int) *harness.Replica { return joined }))
	w.Moves()

	release := harness.HoldAll(w.Proxies) // nobody may write before the recording goes on
	back := w.Outage("")
	w.Server.Kill()
	w.Forget()
	require.NoError(w.T, os.WriteFile(file, backup, 0o600))
	w.CountersBeginAnew(w.Server.Restart)
	f.restored = f.names(w)
	f.hit(f.restored)
	w.NextLife(w.Server)
	release()
	back()
	begun, silent := time.Now(), w.silent()
	harness.Eventually(w.T, "every silent device is routable again",
		func() bool { return w.routable(silent) })
	w.within("all routable again, also those whose entry named the dead", time.Since(begun),
		grace+2*harness.Interval)
	harness.Eventually(w.T, "its entries are swept again", func() bool { return f.names(w) == 0 })
}

// grace is how long Redis has to be listened to before anything is deleted.
const grace = harness.TTL + 2*time.Second

// names is how many entries name the dead owner.
func (f *backupRestored) names(w *environment) (n int) {
	for _, owner := range w.entries() {
		if owner == f.gone {
			n++
		}
	}
	return n
}

func goneTwice(w *environment, v *judge.Verdict) {
	f := w.fault.(*backupRestored)
	w.remark("the backup brought back %d entries of the dead, who had left %d", f.restored, f.had)
	require.Equal(w.T, v.Evicted(""), v.Evicted(f.gone), "somebody who lives was evicted")
	require.Positive(w.T, v.Evicted(f.gone))
	for i := 1; i < len(v.Terms); i++ {
		require.Greater(w.T, v.Terms[i].Epoch, v.Terms[i-1].Epoch, "no epoch is drawn again")
	}
}

// upgraded promotes a replica of a newer version that lacks nothing.
type upgraded struct{ failover }

func (f *upgraded) setup(w *environment) {
	newer := "" // the same again, if it is no Redis 7
	if strings.HasPrefix(harness.InfoOf(w.T, w.Client, "Server", "redis_version"), "7.0.") {
		path, err := exec.CommandContext(w.T.Context(), "../scripts/redis", "8").Output()
		require.NoError(w.T, err, "no Redis 8")
		newer = strings.TrimSpace(string(path))
	}
	f.replica = redistest.StartNamed(w.T, newer)
	follow(w, f.replica)
}

// follow has a server copy the present one, and waits until the present one too says that it does.
func follow(w *environment, next *redistest.Server) {
	host, port, err := net.SplitHostPort(w.Server.Addr())
	require.NoError(w.T, err)
	require.NoError(w.T, next.Client().ReplicaOf(w.T.Context(), host, port).Err())
	harness.Eventually(w.T, "the replica follows", func() bool {
		return strings.Contains(harness.InfoOf(w.T, w.Client, "Replication", "slave0"), "state=online")
	})
}

func (f *upgraded) fail(w *environment) {
	release := harness.HoldAll(w.Proxies)
	back := w.Outage("")
	c := f.replica.Client()
	harness.Eventually(w.T, "the replica has all of it", func() bool {
		return harness.InfoOf(w.T, c, "Replication", "master_repl_offset") ==
			harness.InfoOf(w.T, w.Client, "Replication", "master_repl_offset")
	})
	before := harness.InfoOf(w.T, w.Client, "Server", "redis_version")
	had := w.entries()
	f.promote(w)
	require.Equal(w.T, had, w.entries(), "nothing is lost")
	w.remark("%s was promoted in place of %s", harness.InfoOf(w.T, w.Client, "Server", "redis_version"),
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
	ctx := w.T.Context()
	former := w.Client
	follow(w, f.next)
	w.Meddle("paused", func(p redis.Pipeliner) {
		p.Set(ctx, w.Layout.Paused(), `{"who":"ann","why":"move"}`, time.Hour)
	})
	back := w.Outage("")
	release := harness.HoldAll(w.Proxies)
	host, port, err := net.SplitHostPort(f.next.Addr())
	require.NoError(w.T, err)
	require.NoError(w.T, former.Do(ctx, "FAILOVER", "TO", host, port, "TIMEOUT", 30_000).Err())
	harness.Eventually(w.T, "the former follows the next", func() bool {
		return harness.InfoOf(w.T, former, "Replication", "role") == "slave" &&
			harness.InfoOf(w.T, f.next.Client(), "Replication", "role") == "master"
	})
	// What the former copies from now on is the next one's history.
	require.NoError(w.T, former.ConfigSet(ctx, "appendonly", "no").Err())
	w.CountersBeginAnew(func() { w.NextLife(f.next) })
	w.Client = f.next.Client()
	release()
	refused := func() string { return harness.InfoOf(w.T, former, "Errorstats", "errorstat_READONLY") }
	harness.Eventually(w.T, "the former refuses to be written to", func() bool { return refused() != "" })
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
	require.Equal(w.T, "slave", harness.InfoOf(w.T, former, "Replication", "role"))
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
