package chaos

import (
	"math"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// leaderEndsRows are about leaders that end, at every point of a term.
var leaderEndsRows = []row{
	{2, "LeaderKilledAcquiring", false, 60, slowPass, under(func() fault { return &leaderKilled{at: failpoint.Acquiring} }, sweptAfterKill)},
	{2, "LeaderKilledOpening", false, 60, slowPass, under(func() fault { return &leaderKilled{at: failpoint.Opening} }, sweptAfterKill)},
	{2, "LeaderKilledRenewing", false, 60, slowPass, under(func() fault { return &leaderKilled{at: failpoint.Renewing} }, sweptAfterKill)},
	{2, "LeaderKilledAfterJudging", false, 60, slowPass, under(func() fault { return &leaderKilled{at: failpoint.AfterJudging} }, sweptAfterKill)},
	{2, "LeaderKilledBeforeScript", false, 60, slowPass, under(func() fault { return &leaderKilled{at: failpoint.BeforeScript} }, sweptAfterKill)},
	{2, "LeaderKilledAfterReply", true, 60, slowPass, under(func() fault { return &leaderKilled{at: failpoint.AfterReply} }, sweptAfterKill)},
	{9, "LeaderTerminatedAcquiring", false, 60, slowPass, under(func() fault { return &leaderTerminated{at: failpoint.Acquiring} }, handedOver)},
	{9, "LeaderTerminatedRenewing", false, 60, slowPass, under(func() fault { return &leaderTerminated{at: failpoint.Renewing} }, handedOver)},
	{9, "LeaderTerminatedMidPass", false, 60, slowPass, under(func() fault { return &leaderTerminated{at: failpoint.BeforeScript} }, handedOver)},
}

// resigns asks a leader to give its lease back; false: it has none any more.
func (w *environment) resigns(r *harness.Replica) bool {
	w.T.Helper()
	ask, err := http.NewRequestWithContext(w.T.Context(), http.MethodPost, "http://"+r.HTTP+"/api/v1/resign", nil)
	require.NoError(w.T, err)
	ask.Header.Set("Authorization", "Bearer "+adminToken)
	answer, err := harness.Asker.Do(ask)
	if err != nil {
		w.T.Log("resign:", err)
		return false
	}
	require.NoError(w.T, answer.Body.Close())
	require.Contains(w.T, []int{http.StatusOK, http.StatusConflict}, answer.StatusCode)
	return answer.StatusCode == http.StatusOK
}

// provokes sees to it that a point of a term is come by: by a new leader, or by one with something
// to sweep.
func provokes(at failpoint.Name) func(w *environment) {
	return func(w *environment) {
		haunts(w)
		switch at {
		case failpoint.Acquiring, failpoint.Opening:
			harness.Eventually(w.T, "the leader resigns", func() bool { return w.resigns(w.Leader()) })
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
	require.Equal(w.T, -1, f.victim.Exit(), "it was not killed by a signal")
	f.killed = time.Now()
	w.Died(f.victim, "killed")
	w.ReplicaEnded(f.victim)
	f.hit(f.victim.Failpoints.Hits(w.T, f.at))
	harness.Eventually(w.T, "another leads", func() bool { h := w.Holder(); return h != "" && h != f.victim.ID })
}

// sweptAfterKill: another leads in time, and did what was left to do. What the victim had done the
// server counted, also if it was killed before it could count itself (C5).
func sweptAfterKill(w *environment, v *judge.Verdict) {
	f := w.fault.(*leaderKilled)
	require.Equal(w.T, len(w.Ghosts), v.Evicted("ghost"))
	require.Zero(w.T, f.victim.Proxy.NotUnderstood(), "its answers were not all counted")
	done := f.victim.Proxy.Verdicts()["DONE"]
	require.Equal(w.T, done, w.records(f.victim.ID, math.MaxUint64))
	switch f.at {
	case failpoint.AfterJudging, failpoint.BeforeScript, failpoint.AfterReply:
		require.Positive(w.T, done, "it was not killed in mid-pass")
		require.Less(w.T, v.EvictedBy(f.victim.ID), len(w.Ghosts), "it was not killed in mid-pass")
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
	w.Gate.Lock()
	defer w.Gate.Unlock()
	w.Fleet.Losing(f.former)
	f.former.Term()
	if !f.former.Failpoints.Has(w.T, f.at, ".woken") {
		f.hit(f.former.Failpoints.Hits(w.T, f.at)) // it came in time
	}
	f.took = handover()
	require.Zero(w.T, f.former.Exit(), f.former.Log())
	w.Gone(f.former)
	w.Fleet.LostAt(f.former)
	require.NotEqual(w.T, f.former.ID, w.Holder(), "a ghost lease")
	require.Zero(w.T, w.Exists(w.T.Context(), w.Heartbeat(f.former.ID), w.Layout.Devices(f.former.ID)).Val(), "left behind")
}

// handedOver: the next leader is there at once, and nobody asked for a batch without being leader.
func handedOver(w *environment, v *judge.Verdict) {
	f := w.fault.(*leaderTerminated)
	for _, r := range w.All {
		w.T.Logf("%s: %v", r.ID, r.Proxy.Verdicts())
		require.Zero(w.T, r.Proxy.Verdicts()["FENCED"], r.ID)
		require.Zero(w.T, r.Proxy.NotUnderstood(), r.ID)
	}
	require.Zero(w.T, v.Evicted(f.former.ID), "what was handed back needs no sweeping")
	require.Equal(w.T, len(w.Ghosts), v.Evicted("ghost"))
	w.within("new leader after the release", f.took, 100*time.Millisecond)
}
