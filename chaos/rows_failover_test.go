package chaos

import (
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/redistest"
)

// failoverRows: a replica of Redis is promoted that does not have everything. Done by hand, as
// Sentinel or an operator does it; the address changes hands behind the proxies.
var failoverRows = []row{
	{27, "FailoverThatLostSeconds", true, 60, nil, under(func() fault { return &failover{behind: harness.Interval} }, lostAndBack)},
	{27, "FailoverThatLostLeaseAndHeartbeats", false, 60, nil, under(func() fault { return &failover{behind: harness.TTL + harness.Interval} }, lostAndBack)},
}

// failover cuts the link of a primary to its replica, and later promotes the replica.
type failover struct {
	calm
	behind  time.Duration // for how long the primary goes on alone
	link    *harness.Proxy
	replica *redistest.Server
}

func (f *failover) setup(w *environment) {
	f.link = harness.NewProxy(w.T, w.Server.Addr())
	host, port := f.link.HostPort()
	f.replica = redistest.Start(w.T, append(history.Followed(), "--replicaof", host+" "+port, "--notify-keyspace-events", "K$g")...)
	c := f.replica.Client()
	harness.Eventually(w.T, "the replica follows", func() bool { return harness.InfoOf(w.T, c, "replication", "master_link_status") == "up" })
}

func (f *failover) fail(w *environment) {
	f.link.Hold()
	f.behindBy(w)
	lines := w.Proxies
	var rules []*proxy.Rule
	for _, l := range lines {
		rules = append(rules, l.Hold())
	}
	back := w.Outage("")
	epoch := w.Get(w.T.Context(), history.EpochKey(w.Lease())).Val()
	had := w.HGetAll(w.T.Context(), w.Registry()).Val()

	f.promote(w)
	lost := 0
	for imei, owner := range w.HGetAll(w.T.Context(), w.Registry()).Val() {
		if had[imei] != owner {
			lost++
		}
	}
	w.remark("the promoted one is %v behind: %d entries differ, epoch %s, was %s", f.behind, lost, w.Get(w.T.Context(), history.EpochKey(w.Lease())).Val(), epoch)
	f.hit(lost)
	for i, l := range lines {
		l.Retarget(f.replica.Addr())
		rules[i].End()
	}
	back()
}

// promote makes the replica the primary. The old one is dead for good: what the proxies hold back
// would land there, beside the history that goes on elsewhere.
func (f *failover) promote(w *environment) {
	c := f.replica.Client()
	w.CountersBeginAnew(func() {
		w.Server.Kill()
		require.NoError(w.T, c.ReplicaOf(w.T.Context(), "NO", "ONE").Err())
	})
	w.NextLife(f.replica, "failover")
	w.Client = c
}

// behindBy lets the primary go on alone, and a new term begin in that time, so that its epoch is
// lost too.
func (f *failover) behindBy(w *environment) {
	begun := time.Now()
	cont := w.Stop(w.Leader())
	former := w.Holder()
	harness.Eventually(w.T, "a successor leads", func() bool { h := w.Holder(); return h != "" && h != former })
	cont()
	if left := f.behind - time.Since(begun); left > 0 {
		harness.Lasting(left)
	}
}

func (f *failover) recover(w *environment) {
	w.OneLeads()
}

// lostAndBack: what the promoted one lacks is put back by who holds it, and no epoch is drawn
// again.
func lostAndBack(w *environment, v *judge.Verdict) {
	for i := 1; i < len(v.Terms); i++ {
		require.Greater(w.T, v.Terms[i].Epoch, v.Terms[i-1].Epoch)
	}
	drawn, err := strconv.ParseUint(w.Get(w.T.Context(), history.EpochKey(w.Lease())).Val(), 10, 64)
	require.NoError(w.T, err)
	require.GreaterOrEqual(w.T, drawn, v.Terms[len(v.Terms)-1].Epoch)
}
