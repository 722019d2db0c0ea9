package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// refusalRows: Redis answers, with a no that says why. Those that a server of one's own can be made
// to give are real and last longer than the TTL, so that everybody's heartbeat runs out; of a
// Cluster and of a large file being loaded the proxy says it.
var refusalRows = []row{
	{25, "NoReplicas", false, 60, nil, refused("NOREPLICAS", noReplicas)},
	{25, "ReadOnly", false, 60, nil, refused("READONLY", readOnly)},
	{25, "MasterDown", false, 60, nil, refused("MASTERDOWN", masterDown)},
	{25, "Misconfigured", false, 60, nil, refused("MISCONF", misconfigured)},
	{25, "RefusedOnTheWay", false, 60, nil, under(&answered{}, nothingWent)},
}

func refused(why string, how func(w *environment) (over func())) func(w *environment) {
	return under(&refusal{why: why, how: how}, nothingWent)
}

// refusal has the server refuse to write.
type refusal struct {
	calm
	why string
	how func(w *environment) (over func())
}

func (f *refusal) fail(w *environment) {
	asked, begun := w.asked(), time.Now()
	over := f.how(w)
	w.told(f.why)
	harness.Lasting(harness.TTL + harness.Interval/2 - time.Since(begun))
	over()
	w.heals(time.Now())
	asked.noStorm(w, time.Since(begun))
	f.hit(asked.errors(f.why))
}

// told waits until every replica says that its heartbeat is refused, and by which word: it knows a
// refusal from a silence.
func (w *environment) told(why string) {
	w.Helper()
	harness.Eventually(w, "everybody knows "+why, func() bool {
		for _, r := range w.Replicas() {
			if s, err := r.Status(); err != nil || !strings.Contains(s.Registry.Failing["heartbeat"], why) {
				return false
			}
		}
		return true
	})
}

func noReplicas(w *environment) (over func()) {
	w.config("min-replicas-to-write", "1")
	return func() { w.config("min-replicas-to-write", "0") }
}

// nowhere is a master that nobody is.
var nowhere = []any{"REPLICAOF", "127.0.0.1", "1"}

func readOnly(w *environment) (over func()) {
	require.NoError(w, w.Do(w.Context(), nowhere...).Err())
	return func() { require.NoError(w, w.Do(w.Context(), "REPLICAOF", "NO", "ONE").Err()) }
}

func masterDown(w *environment) (over func()) {
	w.config("replica-serve-stale-data", "no")
	return readOnly(w)
}

// misconfigured: snapshots fail, since a folder stands where the file belongs, and the server is to
// stop then.
func misconfigured(w *environment) (over func()) {
	ctx := w.Context()
	require.NoError(w, os.Mkdir(filepath.Join(w.Server.Dir(), "dump.rdb"), 0o700))
	w.config("save", "3600 1000000")
	require.NoError(w, w.BgSave(ctx).Err())
	harness.Eventually(w, "the snapshot fails", func() bool { return harness.InfoOf(w, w.Client, "Persistence", "rdb_last_bgsave_status") == "err" })
	return func() { w.config("stop-writes-on-bgsave-error", "no") }
}

// answered is what one server does not say: the proxies do, to everything, each for longer than the
// witness' GAP.
type answered struct{ calm }

var answers = []string{
	"LOADING Redis is loading the dataset in memory",
	"CLUSTERDOWN The cluster is down",
	"TRYAGAIN Multiple keys request during rehashing of slot",
}

func (f *answered) fail(w *environment) {
	for _, answer := range answers {
		begun := time.Now()
		var rules []*proxy.Rule
		for _, r := range w.Replicas() {
			rules = append(rules, r.Proxy.AnswerWith(harness.IsServed, answer, -1))
		}
		why, _, _ := strings.Cut(answer, " ")
		w.told(why)
		harness.Lasting(harness.TTL/2 - time.Since(begun))
		for i, rule := range rules {
			rule.End()
			f.hit(rule.Hits())
			noStorm(w, w.Replicas()[i], rule.Hits(), time.Since(begun))
		}
		w.heals(time.Now())
	}
}

// asked counts what replicas ask and what the server answers, as their proxies see it.
type asked map[*harness.Replica]*proxy.Score

func (w *environment) asked() asked {
	a := make(asked)
	for _, r := range w.Replicas() {
		a[r] = r.Proxy.Answers(harness.IsServed)
	}
	return a
}

// errors is how many answers were errors of that name.
func (a asked) errors(name string) (n int) {
	for _, s := range a {
		n += s.Counts()["error "+name]
	}
	return n
}

// mostASecond is far above what a replica asks in these scenarios, calm or not, and far below what
// one that tries again blindly does.
const mostASecond = 120

func (a asked) noStorm(w *environment, took time.Duration) {
	w.Helper()
	for r, s := range a {
		total := s.Unanswered()
		for _, n := range s.Counts() {
			total += n
		}
		noStorm(w, r, total, took)
	}
}

func noStorm(w *environment, r *harness.Replica, requests int, took time.Duration) {
	w.Helper()
	w.Logf("replica %s asked %d times in %v", r.ID, requests, took.Round(time.Millisecond))
	require.Less(w, requests, int(mostASecond*took.Seconds()), "replica %s tries again blindly", r.ID)
}

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

// beforeItsScript starts replicas and has the leader carry out an order when a batch of a dead
// owner's entries is about to go.
func (w *environment) beforeItsScript(order string, ids ...string) (leader *harness.Replica) {
	w.Helper()
	w.Plant("ghost", doomed, true)
	w.Start(ids...)
	w.Spread(harness.Some(0, w.Fleet.Len()))
	leader = w.OneLeads()
	leader.Failpoints.Arm(w, failpoint.BeforeScript, order)
	leader.Failpoints.Wait(w, failpoint.BeforeScript)
	w.Hit(leader.Failpoints.Hits(w, failpoint.BeforeScript))
	return leader
}

// resumed lets a leader that has stopped there go on when something has been done, and returns what
// became of it.
func (w *environment) resumed(leader *harness.Replica, meanwhile func()) *judge.Verdict {
	w.Helper()
	back := w.Outage(leader.ID)
	meanwhile()
	leader.Failpoints.Resume(w, failpoint.BeforeScript, leader.Cont)
	back()
	v := w.judge()
	require.Equal(w, doomed, v.Evicted("ghost"))
	return v
}

// The lease is gone when the batch lands, and nobody else leads: the term's token alone is what
// fences it.
func leaseGoneBeforeTheScript(w *environment) {
	leader := w.beforeItsScript("stop", "one")
	v := w.resumed(leader, func() {
		w.Meddle("the lease is deleted", func(p redis.Pipeliner) { p.Del(w.Context(), w.Lease()) })
	})
	require.Positive(w, leader.Proxy.Verdicts()["FENCED"])
	require.GreaterOrEqual(w, len(v.Terms), 2)
}

// The owner beats again when it has been judged dead. The batch leaves its entries alone; they go
// when it is silent for good.
func ownerBackBeforeTheScript(w *environment) {
	leader := w.beforeItsScript("stop", "one", "two")
	w.resumed(leader, func() { // as an older writer does, without a boot token
		require.NoError(w, w.Set(w.Context(), w.Heartbeat("ghost"), "1", harness.TTL).Err())
	})
	require.Positive(w, leader.Proxy.Verdicts()["ALIVE"])
}

// The leader dies when everything is ready for a dead owner's batch. Nothing that it did before may
// keep its successor from finding the same entries again.
func leaderKilledBeforeItsScript(w *environment) {
	leader := w.beforeItsScript("stop", "one", "two", "three")
	w.Kill(leader)
	w.ends()
	v := w.judge()
	require.Zero(w, v.EvictedBy(leader.ID))
	require.Equal(w, doomed, v.Evicted("ghost"))
}

// The leader is asked to stop while its batch is under way. The batch is waited for, and then the
// lease is given back.
func askedToStopBeforeItsScript(w *environment) {
	leader := w.beforeItsScript("wait 500ms", "one")
	require.Zero(w, w.Terminate(leader), leader.Log())
	w.Start("two")
	w.ends()
	v := w.judge()
	require.Equal(w, doomed, v.EvictedBy(leader.ID), "the batch was not under way: this run proves nothing")
}

// Batches are done and their replies are lost. The leader asks again, and each is counted once,
// also by itself.
func batchRepliesLost(w *environment) {
	w.Plant("early", 50, true)
	w.Start("one", "two")
	w.Spread(harness.Some(0, w.Fleet.Len()))
	w.InPass(1) // the server has the script: a reply that says it has not is not worth losing
	leader := w.OneLeads()
	lost := leader.Proxy.LoseReply(harness.IsBatch, 2)
	w.Plant("ghost", doomed, true)
	harness.Eventually(w, "replies are lost", func() bool { return lost.Hits() == 2 })
	w.Hit(lost.Hits())
	v := w.judge()
	require.Equal(w, 50+doomed, v.EvictedBy(leader.ID))
}

// A replica cannot register what it holds, and the devices have moved on before it can. What it
// then puts back must not be theirs any more.
func healOfTheFormerOwner(w *environment) {
	former, now := w.Start("one"), w.Start("two")
	lost := former.Proxy.LoseRequest(func(r proxy.Request) bool { return harness.IsRegister(r) || harness.IsHeal(r) }, -1)
	all := harness.Some(0, w.Fleet.Len())
	for _, to := range []*harness.Replica{former, now} { // their old sockets stay open
		require.NoError(w, w.Fleet.ConnectAll(w.Context(), all, func(int) *harness.Replica { return to }))
	}
	w.Registered(0)
	w.Beats(3) // what lands now is no late registration
	require.Positive(w, lost.Hits())
	w.Hit(lost.Hits())
	lost.End()
	answers := former.Proxy.Answers(harness.IsHeal)
	harness.Eventually(w, "the former owner heals", func() bool { return answers.Counts()["OK"] > 0 })
	// what it was told in answer may lead it to try again, while it still has the sockets
	harness.Lasting(harness.Interval)
	w.Registered(0)
	for _, i := range all {
		w.Fleet.DropStale(i)
	}
	v := w.judge()
	require.Zero(w, v.Evicted(""))
}

// lossRows: Redis loses something, by somebody's mistake. A sweep is under way where that may
// disturb one.
var lossRows = []row{
	{23, "Flushed", true, 60, nil, under(&flushed{}, onlyTheDeadWent)},
	{23, "LeaseDeleted", false, 60, slowSweep, under(&loss{what: theLease, sweeping: true}, allSwept)},
	{23, "WitnessDeleted", false, 60, slowSweep, under(&loss{what: theWitness, sweeping: true}, allSwept)},
	{23, "LogDeleted", false, 60, slowSweep, under(&loss{what: theLog, sweeping: true}, allSwept)},
	{23, "ScriptsFlushed", false, 60, slowSweep, under(&loss{what: allScripts, sweeping: true}, allSwept)},
	{23, "HeartbeatDeleted", false, 60, nil, under(&heartbeatLost{}, nil)},
	{23, "LeadersHeartbeatDeleted", false, 60, nil, under(&ownHeartbeatLost{}, allSwept)},
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

func everything(w *environment, p redis.Pipeliner) { p.FlushAll(w.Context()) }
func theLease(w *environment, p redis.Pipeliner)   { p.Del(w.Context(), w.Lease()) }
func theWitness(w *environment, p redis.Pipeliner) { p.Del(w.Context(), w.Witness()) }
func theLog(w *environment, p redis.Pipeliner)     { p.Del(w.Context(), w.Log()) }
func allScripts(w *environment, p redis.Pipeliner) { p.ScriptFlush(w.Context()) }

func (f *loss) fail(w *environment) {
	if f.sweeping {
		w.Plant("ghost", swept, true)
		w.InPass(2)
		require.Positive(w, w.SCard(w.Context(), w.Layout.Devices("ghost")).Val(), "the sweep was over too soon: this run proves nothing")
	}
	w.Meddle("something is lost", func(p redis.Pipeliner) { f.what(w, p) })
	f.hit(1)
	at := time.Now()
	w.heals(at)
	w.OneLeads()
	w.within("a leader again", time.Since(at), harness.LeaseTTL+harness.LeaseRetry)
}

// flushed loses everything, and then a replica dies for real: a witness that has begun anew must
// not keep its entries for longer than GRACE (C6).
type flushed struct {
	loss
	dead *harness.Replica
}

func (f *flushed) fail(w *environment) {
	f.what = everything
	f.loss.fail(w)
	f.dead = w.Follower()
	w.Kill(f.dead)
	harness.Eventually(w, "the dead one's entries go", func() bool { return w.unindexed(f.dead.ID) })
}

func onlyTheDeadWent(w *environment, v *judge.Verdict) {
	dead := w.fault.(*flushed).dead.ID
	require.Positive(w, v.Evicted(dead))
	require.Equal(w, v.Evicted(""), v.Evicted(dead), "somebody who lives was evicted")
}

// allSwept: the sweep that was disturbed was done to its end, before and after the loss, and
// nothing else was swept.
func allSwept(w *environment, v *judge.Verdict) {
	require.Equal(w, swept, v.Evicted("ghost"))
	require.Equal(w, swept, v.Evicted(""), "somebody who lives was evicted")
}

// heartbeatLost deletes one heartbeat, whose owner does not notice before its entries are swept:
// nothing tells that from a death. It notices at its next beat, and puts them back.
type heartbeatLost struct{ calm }

func (f *heartbeatLost) fail(w *environment) {
	owner := w.Follower()
	silent := w.silent()
	back, mute := w.Outage(owner.ID), owner.Proxy.Hold()
	w.Meddle("the heartbeat of "+owner.ID+" is lost", func(p redis.Pipeliner) { p.Del(w.Context(), w.Heartbeat(owner.ID)) })
	harness.Eventually(w, "its entries are swept", func() bool {
		return !w.routable(silent) && w.unindexed(owner.ID)
	})
	f.hit(1)
	mute.End()
	back()
	w.heals(time.Now())
}

// ownHeartbeatLost deletes the leader's own heartbeat, and the leader's beats do not get through,
// while its batches do: what it cannot see of itself it cannot expect to see of others.
type ownHeartbeatLost struct{ calm }

func (f *ownHeartbeatLost) fail(w *environment) {
	leader := w.Leader()
	back := w.Outage(leader.ID)
	mute := leader.Proxy.LoseRequest(func(r proxy.Request) bool { return harness.IsBeat(r) || harness.IsRegister(r) || harness.IsHeal(r) }, -1)
	w.Meddle("the heartbeat of "+leader.ID+" is lost", func(p redis.Pipeliner) { p.Del(w.Context(), w.Heartbeat(leader.ID)) })
	w.Plant("ghost", swept, true)
	w.raised("self_check")
	f.hit(1)
	mute.End()
	back()
	w.heals(time.Now())
}
