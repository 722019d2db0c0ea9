package chaos

import (
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// guardRows meet a leader in the instant in which only the server can still keep it from a mistake: it has judged, asked
// its clock, and its script is about to go. A process that is stopped from outside hardly ever stands there.
var guardRows = []row{
	{2, "LeaderKilledBeforeItsScript", false, 30, nil, leaderKilledBeforeItsScript},
	{5, "LeaseGoneBeforeTheScript", false, 20, nil, leaseGoneBeforeTheScript},
	{9, "AskedToStopBeforeItsScript", false, 20, nil, askedToStopBeforeItsScript},
	{11, "BatchRepliesLost", false, 20, map[string]string{"JANITOR_DELETE_BATCH": "50"}, batchRepliesLost},
	{18, "HealOfTheFormerOwner", false, 20, nil, healOfTheFormerOwner},
	{16, "OwnerBackBeforeTheScript", false, 20, nil, ownerBackBeforeTheScript},
}

// doomed is how many entries of a dead owner these rows have: one batch.
const doomed = 200

// The lease is gone when the batch lands, and nobody else leads: the term's token alone is what fences it.
func leaseGoneBeforeTheScript(w *world) {
	w.plant("ghost", doomed, true)
	leader := w.start("one")
	leader.points.arm(w.t, failpoint.BeforeScript, "stop")
	w.spread(some(0, w.devices.Len()))
	leader.points.wait(w.t, failpoint.BeforeScript)
	w.hit(leader.points.hits(w.t, failpoint.BeforeScript))
	back := w.away(leader.id)
	w.meddle("the lease is deleted", func(p redis.Pipeliner) { p.Del(w.t.Context(), w.Lease()) })
	leader.points.resume(w.t, failpoint.BeforeScript, leader.cont)
	back()
	v := w.judge()
	require.Positive(w.t, leader.proxy.verdicts()["FENCED"])
	require.GreaterOrEqual(w.t, len(v.Terms), 2)
	require.Equal(w.t, doomed, v.Evicted("ghost"))
}

// The owner beats again when it has been judged dead. The batch leaves its entries alone; they go when it is silent for good.
func ownerBackBeforeTheScript(w *world) {
	w.plant("ghost", doomed, true)
	w.start("one")
	w.start("two")
	w.spread(some(0, w.devices.Len()))
	leader := w.oneLeads()
	leader.points.arm(w.t, failpoint.BeforeScript, "stop")
	leader.points.wait(w.t, failpoint.BeforeScript)
	w.hit(leader.points.hits(w.t, failpoint.BeforeScript))
	back := w.away(leader.id)
	// As an older writer does, without a boot token.
	require.NoError(w.t, w.Set(w.t.Context(), w.Heartbeat("ghost"), "1", ttl).Err())
	leader.points.resume(w.t, failpoint.BeforeScript, leader.cont)
	back()
	v := w.judge()
	require.Positive(w.t, leader.proxy.verdicts()["ALIVE"])
	require.Equal(w.t, doomed, v.Evicted("ghost"))
}

// The leader dies when everything is ready for a dead owner's batch. Nothing that it did before may keep its successor from
// finding the same entries again.
func leaderKilledBeforeItsScript(w *world) {
	w.plant("ghost", doomed, true)
	for _, id := range []string{"one", "two", "three"} {
		w.start(id)
	}
	w.spread(some(0, w.devices.Len()))
	leader := w.oneLeads()
	leader.points.arm(w.t, failpoint.BeforeScript, "stop")
	leader.points.wait(w.t, failpoint.BeforeScript)
	w.hit(leader.points.hits(w.t, failpoint.BeforeScript))
	w.kill(leader)
	w.ends()
	v := w.judge()
	require.Zero(w.t, v.EvictedBy(leader.id))
	require.Equal(w.t, doomed, v.Evicted("ghost"))
}

// The leader is asked to stop while its batch is under way. The batch is waited for, and then the lease is given back.
func askedToStopBeforeItsScript(w *world) {
	w.plant("ghost", doomed, true)
	leader := w.start("one")
	leader.points.arm(w.t, failpoint.BeforeScript, "wait 500ms")
	w.spread(some(0, w.devices.Len()))
	leader.points.wait(w.t, failpoint.BeforeScript)
	w.hit(leader.points.hits(w.t, failpoint.BeforeScript))
	w.devices.losing(leader)
	leader.term()
	require.Zero(w.t, leader.exit(), leader.Log())
	w.gone(leader)
	w.devices.lost(leader)
	w.start("two")
	w.ends()
	v := w.judge()
	require.Equal(w.t, doomed, v.EvictedBy(leader.id), "the batch was not under way: this run proves nothing")
}

// Batches are done and their replies are lost. The leader asks again, and each is counted once, also by itself.
func batchRepliesLost(w *world) {
	w.plant("early", 50, true)
	w.start("one")
	w.start("two")
	w.spread(some(0, w.devices.Len()))
	w.inPass(1) // the server has the script: a reply that says it has not is not worth losing
	leader := w.oneLeads()
	lost := leader.proxy.LoseReply(isBatch, 2)
	w.plant("ghost", doomed, true)
	eventually(w.t, "replies are lost", func() bool { return lost.Hits() == 2 })
	w.hit(lost.Hits())
	v := w.judge()
	require.Equal(w.t, 50+doomed, v.EvictedBy(leader.id))
}

// A replica cannot register what it holds, and the devices have moved on before it can. What it then puts back must not be
// theirs any more.
func healOfTheFormerOwner(w *world) {
	former, now := w.start("one"), w.start("two")
	lost := former.proxy.LoseRequest(func(r proxy.Request) bool { return isRegister(r) || isHeal(r) }, -1)
	all := some(0, w.devices.Len())
	for _, to := range []*replica{former, now} { // their old sockets stay open
		require.NoError(w.t, w.devices.moveAll(w.t.Context(), all, func(int) *replica { return to }))
	}
	w.registered(0)
	w.beats(3) // what lands now is no late registration
	require.Positive(w.t, lost.Hits())
	w.hit(lost.Hits())
	lost.End()
	answers := former.proxy.Answers(isHeal)
	eventually(w.t, "the former owner heals", func() bool { return answers.Counts()["OK"] > 0 })
	lasting(interval) // what it was told in answer may lead it to try again, while it still has the sockets
	w.registered(0)
	for _, i := range all {
		w.devices.DropStale(i)
	}
	v := w.judge()
	require.Zero(w.t, v.Evicted(""))
}
