package chaos

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// lossRows: Redis loses something, by somebody's mistake. A sweep is under way where that may disturb one.
var lossRows = []row{
	{23, "Flushed", true, 60, nil, under(func() fault { return &flushed{} }, onlyTheDeadWent)},
	{23, "LeaseDeleted", false, 60, slowSweep, under(func() fault { return &loss{what: theLease, sweeping: true} }, allSwept)},
	{23, "WitnessDeleted", false, 60, slowSweep, under(func() fault { return &loss{what: theWitness, sweeping: true} }, allSwept)},
	{23, "AuditDeleted", false, 60, slowSweep, under(func() fault { return &loss{what: theAudit, sweeping: true} }, allSwept)},
	{23, "ScriptsFlushed", false, 60, slowSweep, under(func() fault { return &loss{what: allScripts, sweeping: true} }, allSwept)},
	{23, "HeartbeatDeleted", false, 60, nil, under(func() fault { return &heartbeatLost{} }, nil)},
	{23, "LeadersHeartbeatDeleted", false, 60, nil, under(func() fault { return &canaryLost{} }, allSwept)},
}

// swept is how many entries are planted where a sweep is to be disturbed: thirty batches, of which the first may need no rest.
const swept = 1500

// loss loses something in the middle of what goes on.
type loss struct {
	calm
	what     func(w *world, p redis.Pipeliner)
	sweeping bool
}

func everything(w *world, p redis.Pipeliner) { p.FlushAll(w.t.Context()) }
func theLease(w *world, p redis.Pipeliner)   { p.Del(w.t.Context(), w.Lease()) }
func theWitness(w *world, p redis.Pipeliner) { p.Del(w.t.Context(), w.Witness()) }
func theAudit(w *world, p redis.Pipeliner)   { p.Del(w.t.Context(), w.Audit()) }
func allScripts(w *world, p redis.Pipeliner) { p.ScriptFlush(w.t.Context()) }

func (f *loss) fail(w *world) {
	if f.sweeping {
		w.plant("ghost", swept, true)
		w.inPass(2)
		require.Positive(w.t, w.SCard(w.t.Context(), w.Layout.Devices("ghost")).Val(), "the sweep was over too soon: this run proves nothing")
	}
	w.meddle("something is lost", func(p redis.Pipeliner) { f.what(w, p) })
	f.hit(1)
	at := time.Now()
	w.heals(at)
	w.oneLeads()
	w.within("a leader again", time.Since(at), leaseTTL+leaseRetry)
}

// flushed loses everything, and then a replica dies for real: a witness that has begun anew must not keep its entries for longer
// than WARM (C6).
type flushed struct {
	loss
	dead *replica
}

func (f *flushed) fail(w *world) {
	f.what = everything
	f.loss.fail(w)
	f.dead = w.follower()
	w.kill(f.dead)
	eventually(w.t, "the dead one's entries go", func() bool { return w.SCard(w.t.Context(), w.Layout.Devices(f.dead.id)).Val() == 0 })
}

func onlyTheDeadWent(w *world, v *judge.Verdict) {
	dead := w.fault.(*flushed).dead.id
	require.Positive(w.t, v.Evicted(dead))
	require.Equal(w.t, v.Evicted(""), v.Evicted(dead), "somebody who lives was evicted")
}

// allSwept: the sweep that was disturbed was done to its end, before and after the loss, and nothing else was swept.
func allSwept(w *world, v *judge.Verdict) {
	require.Equal(w.t, swept, v.Evicted("ghost"))
	require.Equal(w.t, swept, v.Evicted(""), "somebody who lives was evicted")
}

// heartbeatLost deletes one heartbeat, whose owner does not notice before its entries are swept: nothing tells that from a
// death. It notices at its next beat, and puts them back.
type heartbeatLost struct{ calm }

func (f *heartbeatLost) fail(w *world) {
	owner := w.follower()
	silent := w.silent()
	back, mute := w.away(owner.id), owner.proxy.Hold()
	w.meddle("the heartbeat of "+owner.id+" is lost", func(p redis.Pipeliner) { p.Del(w.t.Context(), w.Heartbeat(owner.id)) })
	eventually(w.t, "its entries are swept", func() bool {
		return !w.routable(silent) && w.SCard(w.t.Context(), w.Layout.Devices(owner.id)).Val() == 0
	})
	f.hit(1)
	mute.End()
	back()
	w.heals(time.Now())
}

// canaryLost deletes the leader's own heartbeat, and the leader's beats do not get through, while its batches do: what it cannot see of itself
// it cannot expect to see of others.
type canaryLost struct{ calm }

func (f *canaryLost) fail(w *world) {
	leader := w.leader()
	back := w.away(leader.id)
	mute := leader.proxy.LoseRequest(func(r proxy.Request) bool { return isBeat(r) || isRegister(r) || isHeal(r) }, -1)
	w.meddle("the heartbeat of "+leader.id+" is lost", func(p redis.Pipeliner) { p.Del(w.t.Context(), w.Heartbeat(leader.id)) })
	w.plant("ghost", swept, true)
	w.doubted("self_check")
	f.hit(1)
	mute.End()
	back()
	w.heals(time.Now())
}
