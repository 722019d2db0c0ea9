package orphans

import (
	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// leaderKilled kills the leader at a point, as it works on orphans.
func leaderKilled(at failpoint.Name) func(w *world) {
	return func(w *world) {
		leader, _ := w.leader()
		leak := w.backend.leak()
		leader.Failpoints.Arm(w, at, "kill")
		leader.Failpoints.Wait(w, at)
		<-leader.Done()
		w.killed[leader.ID] = true
		for id, k := range w.workers {
			if !k.Runs() {
				w.work(id)
			}
		}
		w.goes(leak)
	}
}

// leaderStopped stops the leader when it has judged, until another has led and cleaned up. What it
// judged is made anew meanwhile. When it is woken, its delete reaches the server.
func leaderStopped(w *world) {
	leader, other := w.leader()
	leader.Failpoints.Arm(w, failpoint.BeforeScript, "stop")
	leak := w.backend.leak()
	leader.Failpoints.Wait(w, failpoint.BeforeScript)
	harness.Eventually(w, "the other leads", func() bool {
		now, _ := w.leader()
		return now == other
	})
	w.goes(leak)
	w.backend.again()
	leader.Failpoints.Resume(w, failpoint.BeforeScript, leader.Cont)
	harness.Eventually(w, "its delete is refused", func() bool { return leader.batches.Counts()["FENCED"] > 0 })
}

// killedInTurn kills whoever leads, at every point between judging and counting, several times.
func killedInTurn(w *world) {
	for _, at := range []failpoint.Name{
		failpoint.BeforeScript, failpoint.AfterReply, failpoint.BeforeScript, failpoint.AfterReply,
	} {
		leaderKilled(at)(w)
	}
}
