package chaos

import (
	"math"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

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
func (w *world) resigns(r *replica) bool {
	w.t.Helper()
	ask, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+r.http+"/api/v1/resign", nil)
	require.NoError(w.t, err)
	ask.Header.Set("Authorization", "Bearer "+adminToken)
	answer, err := asker.Do(ask)
	if err != nil {
		w.t.Log("resign:", err)
		return false
	}
	require.NoError(w.t, answer.Body.Close())
	require.Contains(w.t, []int{http.StatusOK, http.StatusConflict}, answer.StatusCode)
	return answer.StatusCode == http.StatusOK
}

// provokes sees to it that a point of a term is come by: by a new leader, or by one with something to sweep.
func provokes(at failpoint.Name) func(w *world) {
	return func(w *world) {
		haunts(w)
		switch at {
		case failpoint.Acquiring, failpoint.Opening:
			eventually(w.t, "the leader resigns", func() bool { return w.resigns(w.leader()) })
		}
	}
}

// leaderKilled kills the leader at one point of its term, from within: no signal from outside would hit that.
type leaderKilled struct {
	calm
	at     failpoint.Name
	victim *replica
	killed time.Time
}

func (f *leaderKilled) fail(w *world) {
	order := "kill"
	switch f.at {
	case failpoint.AfterJudging, failpoint.BeforeScript, failpoint.AfterReply:
		order = "kill 3"
	}
	f.victim = w.meets(f.at, order, provokes(f.at))
	require.Equal(w.t, -1, f.victim.exit(), "it was not killed by a signal")
	f.killed = time.Now()
	w.died(f.victim, "killed")
	w.ended(f.victim)
	f.hit(f.victim.points.hits(w.t, f.at))
	eventually(w.t, "another leads", func() bool { h := w.holder(); return h != "" && h != f.victim.id })
}

// sweptAfterKill: another leads in time, and did what was left to do. What the victim had done the server counted, also if it was
// killed before it could count itself (C5).
func sweptAfterKill(w *world, v *judge.Verdict) {
	f := w.fault.(*leaderKilled)
	require.Equal(w.t, len(w.ghosts), v.Evicted("ghost"))
	require.Zero(w.t, f.victim.proxy.NotUnderstood(), "its answers were not all counted")
	done := f.victim.proxy.verdicts()["DONE"]
	require.Equal(w.t, done, w.records(f.victim.id, math.MaxUint64))
	switch f.at {
	case failpoint.AfterJudging, failpoint.BeforeScript, failpoint.AfterReply:
		require.Positive(w.t, done, "it was not killed in mid-pass")
		require.Less(w.t, v.EvictedBy(f.victim.id), len(w.ghosts), "it was not killed in mid-pass")
	}
	w.within("new leader after the kill", v.NextLease(f.killed, f.victim.id).Sub(f.killed), leaseTTL+leaseRetry)
}

// leaderTerminated asks the leader to end (SIGTERM) while it is at one point of its term.
type leaderTerminated struct {
	calm
	at     failpoint.Name
	former *replica
	took   time.Duration // from the release to the next leader
}

func (f *leaderTerminated) fail(w *world) {
	f.former = w.meets(f.at, "wait 1s", provokes(f.at))
	handover := w.watchLease()
	w.gate.Lock()
	defer w.gate.Unlock()
	w.devices.losing(f.former)
	f.former.term()
	if !f.former.points.has(w.t, f.at, ".woken") {
		f.hit(f.former.points.hits(w.t, f.at)) // it came in time
	}
	f.took = handover()
	require.Zero(w.t, f.former.exit(), f.former.Log())
	w.gone(f.former)
	w.devices.lost(f.former)
	require.NotEqual(w.t, f.former.id, w.holder(), "a ghost lease")
	require.Zero(w.t, w.Exists(w.t.Context(), w.Heartbeat(f.former.id), w.Layout.Devices(f.former.id)).Val(), "left behind")
}

// handedOver: the next leader is there at once, and nobody asked for a batch without being leader.
func handedOver(w *world, v *judge.Verdict) {
	f := w.fault.(*leaderTerminated)
	for _, r := range w.all {
		w.t.Logf("%s: %v", r.id, r.proxy.verdicts())
		require.Zero(w.t, r.proxy.verdicts()["FENCED"], r.id)
		require.Zero(w.t, r.proxy.NotUnderstood(), r.id)
	}
	require.Zero(w.t, v.Evicted(f.former.id), "what was handed back needs no sweeping")
	require.Equal(w.t, len(w.ghosts), v.Evicted("ghost"))
	w.within("new leader after the release", f.took, 100*time.Millisecond)
}
