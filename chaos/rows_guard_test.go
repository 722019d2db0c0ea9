package chaos

import (
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// guardRows meet a leader in the instant in which only the server can still keep it from a mistake:
// it has judged, asked its clock, and its script is about to go. A process that is stopped from
// outside hardly ever stands there.
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

// The lease is gone when the batch lands, and nobody else leads: the term's token alone is what
// fences it.
func leaseGoneBeforeTheScript(w *environment) {
	w.Plant("ghost", doomed, true)
	leader := w.Start("one")
	leader.Failpoints.Arm(w.T, failpoint.BeforeScript, "stop")
	w.Spread(harness.Some(0, w.Fleet.Len()))
	leader.Failpoints.Wait(w.T, failpoint.BeforeScript)
	w.Hit(leader.Failpoints.Hits(w.T, failpoint.BeforeScript))
	back := w.Outage(leader.ID)
	w.Meddle("the lease is deleted", func(p redis.Pipeliner) { p.Del(w.T.Context(), w.Lease()) })
	leader.Failpoints.Resume(w.T, failpoint.BeforeScript, leader.Cont)
	back()
	v := w.judge()
	require.Positive(w.T, leader.Proxy.Verdicts()["FENCED"])
	require.GreaterOrEqual(w.T, len(v.Terms), 2)
	require.Equal(w.T, doomed, v.Evicted("ghost"))
}

// The owner beats again when it has been judged dead. The batch leaves its entries alone; they go
// when it is silent for good.
func ownerBackBeforeTheScript(w *environment) {
	w.Plant("ghost", doomed, true)
	w.Start("one")
	w.Start("two")
	w.Spread(harness.Some(0, w.Fleet.Len()))
	leader := w.OneLeads()
	leader.Failpoints.Arm(w.T, failpoint.BeforeScript, "stop")
	leader.Failpoints.Wait(w.T, failpoint.BeforeScript)
	w.Hit(leader.Failpoints.Hits(w.T, failpoint.BeforeScript))
	back := w.Outage(leader.ID)
	// As an older writer does, without a boot token.
	require.NoError(w.T, w.Set(w.T.Context(), w.Heartbeat("ghost"), "1", harness.TTL).Err())
	leader.Failpoints.Resume(w.T, failpoint.BeforeScript, leader.Cont)
	back()
	v := w.judge()
	require.Positive(w.T, leader.Proxy.Verdicts()["ALIVE"])
	require.Equal(w.T, doomed, v.Evicted("ghost"))
}

// The leader dies when everything is ready for a dead owner's batch. Nothing that it did before may
// keep its successor from finding the same entries again.
func leaderKilledBeforeItsScript(w *environment) {
	w.Plant("ghost", doomed, true)
	w.StartAll("one", "two", "three")
	w.Spread(harness.Some(0, w.Fleet.Len()))
	leader := w.OneLeads()
	leader.Failpoints.Arm(w.T, failpoint.BeforeScript, "stop")
	leader.Failpoints.Wait(w.T, failpoint.BeforeScript)
	w.Hit(leader.Failpoints.Hits(w.T, failpoint.BeforeScript))
	w.Kill(leader)
	w.ends()
	v := w.judge()
	require.Zero(w.T, v.EvictedBy(leader.ID))
	require.Equal(w.T, doomed, v.Evicted("ghost"))
}

// The leader is asked to stop while its batch is under way. The batch is waited for, and then the
// lease is given back.
func askedToStopBeforeItsScript(w *environment) {
	w.Plant("ghost", doomed, true)
	leader := w.Start("one")
	leader.Failpoints.Arm(w.T, failpoint.BeforeScript, "wait 500ms")
	w.Spread(harness.Some(0, w.Fleet.Len()))
	leader.Failpoints.Wait(w.T, failpoint.BeforeScript)
	w.Hit(leader.Failpoints.Hits(w.T, failpoint.BeforeScript))
	w.Fleet.Losing(leader)
	leader.Term()
	require.Zero(w.T, leader.Exit(), leader.Log())
	w.Gone(leader)
	w.Fleet.LostAt(leader)
	w.Start("two")
	w.ends()
	v := w.judge()
	require.Equal(w.T, doomed, v.EvictedBy(leader.ID), "the batch was not under way: this run proves nothing")
}

// Batches are done and their replies are lost. The leader asks again, and each is counted once,
// also by itself.
func batchRepliesLost(w *environment) {
	w.Plant("early", 50, true)
	w.Start("one")
	w.Start("two")
	w.Spread(harness.Some(0, w.Fleet.Len()))
	w.InPass(1) // the server has the script: a reply that says it has not is not worth losing
	leader := w.OneLeads()
	lost := leader.Proxy.LoseReply(harness.IsBatch, 2)
	w.Plant("ghost", doomed, true)
	harness.Eventually(w.T, "replies are lost", func() bool { return lost.Hits() == 2 })
	w.Hit(lost.Hits())
	v := w.judge()
	require.Equal(w.T, 50+doomed, v.EvictedBy(leader.ID))
}

// A replica cannot register what it holds, and the devices have moved on before it can. What it
// then puts back must not be theirs any more.
func healOfTheFormerOwner(w *environment) {
	former, now := w.Start("one"), w.Start("two")
	lost := former.Proxy.LoseRequest(func(r proxy.Request) bool { return harness.IsRegister(r) || harness.IsHeal(r) }, -1)
	all := harness.Some(0, w.Fleet.Len())
	for _, to := range []*harness.Replica{former, now} { // their old sockets stay open
		require.NoError(w.T, w.Fleet.ConnectAll(w.T.Context(), all, func(int) *harness.Replica { return to }))
	}
	w.Registered(0)
	w.Beats(3) // what lands now is no late registration
	require.Positive(w.T, lost.Hits())
	w.Hit(lost.Hits())
	lost.End()
	answers := former.Proxy.Answers(harness.IsHeal)
	harness.Eventually(w.T, "the former owner heals", func() bool { return answers.Counts()["OK"] > 0 })
	harness.Lasting(harness.Interval) // what it was told in answer may lead it to try again, while it still has the sockets
	w.Registered(0)
	for _, i := range all {
		w.Fleet.DropStale(i)
	}
	v := w.judge()
	require.Zero(w.T, v.Evicted(""))
}
