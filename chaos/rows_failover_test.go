package chaos

import (
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/redistest"
)

// failoverRows: a replica of Redis is promoted that does not have everything. Done by hand, as Sentinel or an operator does it;
// the address changes hands behind the lines.
var failoverRows = []row{
	{27, "FailoverThatLostSeconds", true, 60, nil, under(func() fault { return &failover{behind: interval} }, lostAndBack)},
	{27, "FailoverThatLostLeaseAndHeartbeats", false, 60, nil, under(func() fault { return &failover{behind: ttl + interval} }, lostAndBack)},
}

// failover cuts the link of a primary to its replica, and later promotes the replica.
type failover struct {
	calm
	behind  time.Duration // for how long the primary goes on alone
	link    *redisProxy
	replica *redistest.Server
}

func (f *failover) setup(w *world) {
	f.link = newProxy(w.t, w.server.Addr())
	host, port := f.link.HostPort()
	f.replica = redistest.Start(w.t, append(history.Followed(), "--replicaof", host+" "+port, "--notify-keyspace-events", "K$g")...)
	c := f.replica.Client()
	eventually(w.t, "the replica follows", func() bool { return infoOf(w.t, c, "replication", "master_link_status") == "up" })
}

func (f *failover) fail(w *world) {
	f.link.Hold()
	f.behindBy(w)
	lines := w.proxies
	var rules []*proxy.Rule
	for _, l := range lines {
		rules = append(rules, l.Hold())
	}
	back := w.away("")
	epoch := w.Get(w.t.Context(), history.EpochKey(w.Lease())).Val()
	had := w.HGetAll(w.t.Context(), w.Registry()).Val()

	f.promote(w)
	lost := 0
	for imei, owner := range w.HGetAll(w.t.Context(), w.Registry()).Val() {
		if had[imei] != owner {
			lost++
		}
	}
	w.remark("the promoted one is %v behind: %d entries differ, epoch %s, was %s", f.behind, lost, w.Get(w.t.Context(), history.EpochKey(w.Lease())).Val(), epoch)
	f.hit(lost)
	for i, l := range lines {
		l.Retarget(f.replica.Addr())
		rules[i].End()
	}
	back()
}

// promote makes the replica the primary. The old one is dead for good: what the lines hold back would land there, beside the
// history that goes on elsewhere.
func (f *failover) promote(w *world) {
	c := f.replica.Client()
	w.anew(func() {
		w.server.Kill()
		require.NoError(w.t, c.ReplicaOf(w.t.Context(), "NO", "ONE").Err())
	})
	w.nextLife(f.replica, "failover")
	w.Client = c
}

// behindBy lets the primary go on alone, and a new term begin in that time, so that its epoch is lost too.
func (f *failover) behindBy(w *world) {
	begun := time.Now()
	cont := w.stop(w.leader())
	former := w.holder()
	eventually(w.t, "a successor leads", func() bool { h := w.holder(); return h != "" && h != former })
	cont()
	if left := f.behind - time.Since(begun); left > 0 {
		lasting(left)
	}
}

func (f *failover) recover(w *world) {
	w.oneLeads()
}

// lostAndBack: what the promoted one lacks is put back by who holds it, and no epoch is drawn again.
func lostAndBack(w *world, v *judge.Verdict) {
	for i := 1; i < len(v.Terms); i++ {
		require.Greater(w.t, v.Terms[i].Epoch, v.Terms[i-1].Epoch)
	}
	drawn, err := strconv.ParseUint(w.Get(w.t.Context(), history.EpochKey(w.Lease())).Val(), 10, 64)
	require.NoError(w.t, err)
	require.GreaterOrEqual(w.t, drawn, v.Terms[len(v.Terms)-1].Epoch)
}
