package chaos

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// leaderRows are about leaders that stop; those that end, and their successors, are in
// rows_leader_ends_test.go and rows_terms_test.go.
var leaderRows = slices.Concat([]row{
	{3, "LeaderStoppedBriefly", true, 60, slowSweep, under(&leaderStopped{}, sameTerm)},
	{4, "LeaderStoppedPastItsLease", true, 60, slowSweep, under(&leaderHeld{meanwhile: anotherLeads}, fenced)},
	{5, "LeaderStoppedNobodyTookOver", false, 60, slowSweep,
		under(&leaderHeld{meanwhile: nobodyLeads}, fencedByNobody)},
	{6, "SuccessorDiesBeforeItWakes", false, 60, slowSweep,
		under(&leaderHeld{meanwhile: anotherLedAndDied}, leadsInANewTerm)},
}, leaderEndsRows, termsRows, staleRows)

const (
	adminToken = "0123456789abcdef0123456789abcdef"
	ghosts     = 2500 // dead entries to be swept meanwhile
)

// haunts gives the leader something to sweep.
func haunts(w *environment) { w.Plant("ghost", ghosts, true) }

// meets orders something at a point which only a leader comes by, or who becomes one, and returns
// who has met it. cause sees to it that somebody will.
func (w *environment) meets(point failpoint.Name, order string, cause func(w *environment)) (who *harness.Replica) {
	w.Helper()
	fleet := w.Replicas()
	for _, r := range fleet {
		r.Failpoints.Arm(w, point, order)
	}
	cause(w)
	harness.Eventually(w, "a leader comes by "+string(point), func() bool {
		for _, r := range fleet {
			if r.Failpoints.Taken(w, point) {
				who = r
			}
		}
		return who != nil
	})
	for _, r := range fleet {
		if r != who {
			require.True(w, r.Failpoints.Disarm(w, point), "%s came by %s as well", r.ID, point)
		}
	}
	return who
}

// term is the epoch of the newest term in the log, and how many batches it has done.
func (w *environment) term() (epoch, batches uint64) {
	w.Helper()
	newest, err := w.XRevRangeN(w.Context(), w.Log(), "+", "-", 1).Result()
	require.NoError(w, err)
	if len(newest) == 0 {
		return 0, 0
	}
	n, err := fmt.Sscanf(newest[0].ID, "%d-%d", &epoch, &batches)
	require.NoError(w, err)
	require.Equal(w, 2, n)
	return epoch, batches
}

// leaderStopped freezes the leader in a pass, for half of its lease. On a machine so busy that a
// stop becomes longer than that, it is done again.
type leaderStopped struct {
	calm
	epoch uint64
	cont  time.Time
}

func (f *leaderStopped) fail(w *environment) {
	require.True(w, harness.Becomes(func() bool {
		haunts(w)
		w.InPass(2)
		// Behind a renewal, so that what is left of the lease is nearly all.
		var token string
		harness.Eventually(w, "the lease is fresh", func() bool {
			token = w.lease()
			return token != "" && w.PTTL(w.Context(), w.Lease()).Val() > harness.LeaseTTL*9/10
		})
		r := w.Leader()
		f.epoch, _ = w.term()
		cont := w.Stop(r)
		f.hit(1)
		harness.Lasting(harness.LeaseTTL / 2)
		f.cont = time.Now()
		cont()
		lost := false
		harness.Eventually(w, "the lease is renewed, or another's", func() bool {
			left := w.PTTL(w.Context(), w.Lease()).Val() // first: it may be the next leader's
			lost = w.lease() != token
			return lost || left > harness.LeaseTTL*2/3
		})
		return !lost
	}), "no term outlives a short stop")
}

// The term that was there before the stop goes on sweeping.
func sameTerm(w *environment, v *judge.Verdict) {
	f := w.fault.(*leaderStopped)
	require.True(w, slices.ContainsFunc(v.Batches, func(b judge.Batch) bool { return b.Epoch == f.epoch && b.At.After(f.cont) }))
	require.Equal(w, len(w.Ghosts), v.Evicted("ghost"))
}

// leaderHeld stops the leader where it has found its term good enough for a batch, which it has not
// yet sent. It sends that when it wakes up, past everything that it could notice itself: what
// refuses it is the fence.
type leaderHeld struct {
	calm
	// meanwhile returns when the leader may go on. What it returns is called when the batch has
	// been answered.
	meanwhile func(w *environment, f *leaderHeld) (after func())

	former  *harness.Replica
	epoch   uint64 // of its term
	batches int    // that the server had done for it
	stopped time.Time
	woken   time.Time
	after   func()
}

func (f *leaderHeld) fail(w *environment) {
	f.former = w.meets(failpoint.BeforeScript, "stop 3", haunts)
	f.stopped = time.Now()
	back := w.Outage(f.former.ID)
	f.epoch, _ = w.term()
	f.batches = f.former.Proxy.Verdicts()["DONE"]
	require.Zero(w, f.former.Proxy.Unanswered())
	f.after = f.meanwhile(w, f)
	f.woken = time.Now()
	f.former.Failpoints.Resume(w, failpoint.BeforeScript, f.former.Cont)
	back()
	f.hit(f.former.Failpoints.Hits(w, failpoint.BeforeScript))
}

func (f *leaderHeld) recover(w *environment) {
	harness.Eventually(w, "the held batch is answered", func() bool {
		return f.former.Proxy.Verdicts()["FENCED"] > 0 || f.former.Proxy.Verdicts()["DONE"] > f.batches
	})
	f.after()
}

// successor waits until another leads, in a term that has done something.
func (f *leaderHeld) successor(w *environment) (who *harness.Replica) {
	harness.Eventually(w, "a successor sweeps", func() bool {
		epoch, batches := w.term()
		return epoch > f.epoch && batches > 0
	})
	who = w.Leader()
	require.NotEqual(w, f.former, who)
	return who
}

func anotherLeads(w *environment, f *leaderHeld) func() {
	w.Died(f.former, "stopped")
	f.successor(w)
	return func() {}
}

// nobodyLeads has the others refused the lease, so that it lapses and is nobody's. Their heartbeats
// and ticks land.
func nobodyLeads(w *environment, f *leaderHeld) func() {
	var rules []*proxy.Rule
	for _, r := range w.Others(f.former) {
		rules = append(rules, r.Proxy.AnswerWith(harness.IsAcquire, "ERR not now", -1))
	}
	harness.Eventually(w, "the lease has lapsed, and others want it", func() bool {
		return w.Holder() == "" && slices.ContainsFunc(rules, func(r *proxy.Rule) bool { return r.Hits() > 0 })
	})
	return func() {
		for _, r := range rules {
			r.End()
		}
	}
}

// anotherLedAndDied leaves nobody who could lead but the former leader, which needs a new term for
// that.
func anotherLedAndDied(w *environment, f *leaderHeld) func() {
	w.Died(f.former, "stopped")
	b := f.successor(w)
	for _, r := range w.Others(f.former, b) {
		w.Cleanup(r.Proxy.AnswerWith(harness.IsAcquire, "ERR not now", -1).End)
	}
	w.Kill(b)
	return func() {
		harness.Eventually(w, "the former leader leads again", func() bool { return w.Holder() == f.former.ID })
	}
}

// fenced: the batch did nothing, and nothing was done any more in that term.
func fenced(w *environment, v *judge.Verdict) {
	f := w.fault.(*leaderHeld)
	w.Logf("term %d of %s: %v", f.epoch, f.former.ID, f.former.Proxy.Verdicts())
	require.Zero(w, f.former.Proxy.NotUnderstood(), "its answers were not all counted")
	require.Positive(w, f.former.Proxy.Verdicts()["FENCED"], "the held batch met no fence")
	require.Equal(w, f.batches, w.records(f.former.ID, f.epoch), "the former term did something after its end")
	require.Greater(w, v.Terms[len(v.Terms)-1].Epoch, f.epoch, "the term did not end")
	require.Equal(w, len(w.Ghosts), v.Evicted("ghost"))
}

// records is how many batches the log has of a leader, in terms up to an epoch; also those that
// found nothing left.
func (w *environment) records(leader string, until uint64) (n int) {
	w.Helper()
	all, err := w.XRange(w.Context(), w.Log(), "-", fmt.Sprint(until)).Result()
	require.NoError(w, err)
	for _, record := range all {
		if record.Values["leader"] == leader && !strings.HasSuffix(record.ID, "-0") {
			n++
		}
	}
	return n
}

// fencedByNobody: and the lease was free when the batch landed.
func fencedByNobody(w *environment, v *judge.Verdict) {
	f := w.fault.(*leaderHeld)
	fenced(w, v)
	require.True(w, v.NextLease(f.stopped, "").After(f.woken), "somebody led meanwhile")
}

// leadsInANewTerm: and there was another's term between that of the batch and the next of its own.
func leadsInANewTerm(w *environment, v *judge.Verdict) {
	f := w.fault.(*leaderHeld)
	fenced(w, v)
	later := slices.DeleteFunc(slices.Clone(v.Terms), func(t judge.Term) bool { return t.Epoch <= f.epoch })
	require.NotEqual(w, f.former.ID, later[0].Leader)
	require.True(w, slices.ContainsFunc(later, func(t judge.Term) bool { return t.Leader == f.former.ID }))
}

// leaderEndsRows are about leaders that end, at every point of a term.
var leaderEndsRows = []row{
	{2, "LeaderKilledAcquiring", false, 60, slowSweep, under(&leaderKilled{at: failpoint.Acquiring},
		sweptAfterKill)},
	{2, "LeaderKilledOpening", false, 60, slowSweep, under(&leaderKilled{at: failpoint.Opening},
		sweptAfterKill)},
	{2, "LeaderKilledRenewing", false, 60, slowSweep, under(&leaderKilled{at: failpoint.Renewing},
		sweptAfterKill)},
	{2, "LeaderKilledAfterJudging", false, 60, slowSweep,
		under(&leaderKilled{at: failpoint.AfterJudging}, sweptAfterKill)},
	{2, "LeaderKilledBeforeScript", false, 60, slowSweep,
		under(&leaderKilled{at: failpoint.BeforeScript}, sweptAfterKill)},
	{2, "LeaderKilledAfterReply", true, 60, slowSweep, under(&leaderKilled{at: failpoint.AfterReply},
		sweptAfterKill)},
	{9, "LeaderTerminatedAcquiring", false, 60, slowSweep,
		under(&leaderTerminated{at: failpoint.Acquiring}, handedOver)},
	{9, "LeaderTerminatedRenewing", false, 60, slowSweep,
		under(&leaderTerminated{at: failpoint.Renewing}, handedOver)},
	{9, "LeaderTerminatedMidPass", false, 60, slowSweep,
		under(&leaderTerminated{at: failpoint.BeforeScript}, handedOver)},
}

// resigns asks a leader to give its lease back; false: it has none any more.
func (w *environment) resigns(r *harness.Replica) bool {
	w.Helper()
	status := w.asks(r, "resign")
	require.Contains(w, []int{0, http.StatusOK, http.StatusConflict}, status)
	return status == http.StatusOK
}

// asks has a replica do what an operator may ask for; its settings have adminToken. It returns the
// status of the answer; 0: there is none.
func (w *environment) asks(r *harness.Replica, what string) int {
	w.Helper()
	ask, err := http.NewRequestWithContext(w.Context(), http.MethodPost, "http://"+r.HTTP+"/api/v1/"+what, nil)
	require.NoError(w, err)
	ask.Header.Set("Authorization", "Bearer "+adminToken)
	answer, err := harness.Asker.Do(ask)
	if err != nil {
		w.T.Log(what+":", err)
		return 0
	}
	require.NoError(w, answer.Body.Close())
	return answer.StatusCode
}

// operated are the settings of rows that ask replicas for something.
var operated = map[string]string{"ADMIN_TOKEN": adminToken}

// provokes sees to it that a point of a term is come by: by a new leader, or by one with something
// to sweep.
func provokes(at failpoint.Name) func(w *environment) {
	return func(w *environment) {
		haunts(w)
		switch at {
		case failpoint.Acquiring, failpoint.Opening:
			harness.Eventually(w, "the leader resigns", func() bool { return w.resigns(w.Leader()) })
		}
	}
}

// leaderKilled kills the leader at one point of its term, from within: no signal from outside would
// hit that.
type leaderKilled struct {
	calm
	at     failpoint.Name
	victim *harness.Replica
	killed time.Time
}

func (f *leaderKilled) fail(w *environment) {
	order := "kill"
	switch f.at {
	case failpoint.AfterJudging, failpoint.BeforeScript, failpoint.AfterReply:
		order = "kill 3"
	}
	f.victim = w.meets(f.at, order, provokes(f.at))
	require.Equal(w, -1, f.victim.Exit(), "it was not killed by a signal")
	f.killed = time.Now()
	w.Died(f.victim, "killed")
	w.Ends(f.victim, func() {})
	f.hit(f.victim.Failpoints.Hits(w, f.at))
	harness.Eventually(w, "another leads", func() bool { h := w.Holder(); return h != "" && h != f.victim.ID })
}

// sweptAfterKill: another leads in time, and did what was left to do. What the victim had done the
// server counted, also if it was killed before it could count itself (C5).
func sweptAfterKill(w *environment, v *judge.Verdict) {
	f := w.fault.(*leaderKilled)
	require.Equal(w, len(w.Ghosts), v.Evicted("ghost"))
	require.Zero(w, f.victim.Proxy.NotUnderstood(), "its answers were not all counted")
	done := f.victim.Proxy.Verdicts()["DONE"]
	require.Equal(w, done, w.records(f.victim.ID, math.MaxUint64))
	switch f.at {
	case failpoint.AfterJudging, failpoint.BeforeScript, failpoint.AfterReply:
		require.Positive(w, done, "it was not killed in mid-pass")
		require.Less(w, v.EvictedBy(f.victim.ID), len(w.Ghosts), "it was not killed in mid-pass")
	}
	w.within("new leader after the kill", v.NextLease(f.killed, f.victim.ID).Sub(f.killed), harness.LeaseTTL+harness.LeaseRetry)
}

// leaderTerminated asks the leader to end (SIGTERM) while it is at one point of its term.
type leaderTerminated struct {
	calm
	at     failpoint.Name
	former *harness.Replica
	took   time.Duration // from the release to the next leader
}

func (f *leaderTerminated) fail(w *environment) {
	f.former = w.meets(f.at, "wait 1s", provokes(f.at))
	handover := w.watchLease()
	w.Ends(f.former, func() {
		f.former.Term()
		if !f.former.Failpoints.Has(w, f.at, ".woken") {
			f.hit(f.former.Failpoints.Hits(w, f.at)) // it came in time
		}
		f.took = handover()
		require.Zero(w, f.former.Exit(), f.former.Log())
	})
	require.NotEqual(w, f.former.ID, w.Holder(), "a ghost lease")
	require.Zero(w, w.Exists(w.Context(), w.Heartbeat(f.former.ID), w.Layout.Devices(f.former.ID)).Val(), "left behind")
}

// handedOver: the next leader is there at once, and nobody asked for a batch without being leader.
func handedOver(w *environment, v *judge.Verdict) {
	f := w.fault.(*leaderTerminated)
	for _, r := range w.All {
		w.Logf("%s: %v", r.ID, r.Proxy.Verdicts())
		require.Zero(w, r.Proxy.Verdicts()["FENCED"], r.ID)
		require.Zero(w, r.Proxy.NotUnderstood(), r.ID)
	}
	require.Zero(w, v.Evicted(f.former.ID), "what was handed back needs no sweeping")
	require.Equal(w, len(w.Ghosts), v.Evicted("ghost"))
	w.within("new leader after the release", f.took, 100*time.Millisecond)
}
