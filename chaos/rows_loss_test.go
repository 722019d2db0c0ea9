package chaos

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// lossRows: Redis loses something, by somebody's mistake. A sweep is under way where that may
// disturb one.
var lossRows = []row{
	{23, "Flushed", true, 60, nil, under(func() fault { return &flushed{} }, onlyTheDeadWent)},
	{23, "LeaseDeleted", false, 60, slowSweep, under(func() fault { return &loss{what: theLease, sweeping: true} }, allSwept)},
	{23, "WitnessDeleted", false, 60, slowSweep, under(func() fault { return &loss{what: theWitness, sweeping: true} }, allSwept)},
	{23, "AuditDeleted", false, 60, slowSweep, under(func() fault { return &loss{what: theAudit, sweeping: true} }, allSwept)},
	{23, "ScriptsFlushed", false, 60, slowSweep, under(func() fault { return &loss{what: allScripts, sweeping: true} }, allSwept)},
	{23, "HeartbeatDeleted", false, 60, nil, under(func() fault { return &heartbeatLost{} }, nil)},
	{23, "LeadersHeartbeatDeleted", false, 60, nil, under(func() fault { return &canaryLost{} }, allSwept)},
}

// swept is how many entries are planted where a sweep is to be disturbed: thirty batches, of which
// the first may need no rest.
const swept = 1500

// loss loses something in the middle of what goes on.
type loss struct {
	calm
	what     func(w *environment, p redis.Pipeliner)
	sweeping bool
}

func everything(w *environment, p redis.Pipeliner) { p.FlushAll(w.T.Context()) }
func theLease(w *environment, p redis.Pipeliner)   { p.Del(w.T.Context(), w.Lease()) }
func theWitness(w *environment, p redis.Pipeliner) { p.Del(w.T.Context(), w.Witness()) }
func theAudit(w *environment, p redis.Pipeliner)   { p.Del(w.T.Context(), w.Audit()) }
func allScripts(w *environment, p redis.Pipeliner) { p.ScriptFlush(w.T.Context()) }

func (f *loss) fail(w *environment) {
	if f.sweeping {
		w.Plant("ghost", swept, true)
		w.InPass(2)
		require.Positive(w.T, w.SCard(w.T.Context(), w.Layout.Devices("ghost")).Val(), "the sweep was over too soon: this run proves nothing")
	}
	w.Meddle("something is lost", func(p redis.Pipeliner) { f.what(w, p) })
	f.hit(1)
	at := time.Now()
	w.heals(at)
	w.OneLeads()
	w.within("a leader again", time.Since(at), harness.LeaseTTL+harness.LeaseRetry)
}

// flushed loses everything, and then a replica dies for real: a witness that has begun anew must
// not keep its entries for longer than WARM (C6).
type flushed struct {
	loss
	dead *harness.Replica
}

func (f *flushed) fail(w *environment) {
	f.what = everything
	f.loss.fail(w)
	f.dead = w.Follower()
	w.Kill(f.dead)
	harness.Eventually(w.T, "the dead one's entries go", func() bool { return w.SCard(w.T.Context(), w.Layout.Devices(f.dead.ID)).Val() == 0 })
}

func onlyTheDeadWent(w *environment, v *judge.Verdict) {
	dead := w.fault.(*flushed).dead.ID
	require.Positive(w.T, v.Evicted(dead))
	require.Equal(w.T, v.Evicted(""), v.Evicted(dead), "somebody who lives was evicted")
}

// allSwept: the sweep that was disturbed was done to its end, before and after the loss, and
// nothing else was swept.
func allSwept(w *environment, v *judge.Verdict) {
	require.Equal(w.T, swept, v.Evicted("ghost"))
	require.Equal(w.T, swept, v.Evicted(""), "somebody who lives was evicted")
}

// heartbeatLost deletes one heartbeat, whose owner does not notice before its entries are swept:
// nothing tells that from a death. It notices at its next beat, and puts them back.
type heartbeatLost struct{ calm }

func (f *heartbeatLost) fail(w *environment) {
	owner := w.Follower()
	silent := w.silent()
	back, mute := w.Outage(owner.ID), owner.Proxy.Hold()
	w.Meddle("the heartbeat of "+owner.ID+" is lost", func(p redis.Pipeliner) { p.Del(w.T.Context(), w.Heartbeat(owner.ID)) })
	harness.Eventually(w.T, "its entries are swept", func() bool {
		return !w.routable(silent) && w.SCard(w.T.Context(), w.Layout.Devices(owner.ID)).Val() == 0
	})
	f.hit(1)
	mute.End()
	back()
	w.heals(time.Now())
}

// canaryLost deletes the leader's own heartbeat, and the leader's beats do not get through, while
// its batches do: what it cannot see of itself it cannot expect to see of others.
type canaryLost struct{ calm }

func (f *canaryLost) fail(w *environment) {
	leader := w.Leader()
	back := w.Outage(leader.ID)
	mute := leader.Proxy.LoseRequest(func(r proxy.Request) bool { return harness.IsBeat(r) || harness.IsRegister(r) || harness.IsHeal(r) }, -1)
	w.Meddle("the heartbeat of "+leader.ID+" is lost", func(p redis.Pipeliner) { p.Del(w.T.Context(), w.Heartbeat(leader.ID)) })
	w.Plant("ghost", swept, true)
	w.doubted("self_check")
	f.hit(1)
	mute.End()
	back()
	w.heals(time.Now())
}
