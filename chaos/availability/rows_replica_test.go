package availability

import (
	"time"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// leaderKilled kills the leader at a point of an auto-offline. The other carries it out.
func leaderKilled(at failpoint.Name) func(w *world) {
	return func(w *world) {
		leader, _ := w.leader()
		leader.Failpoints.Arm(w.T, at, "kill")
		leader.Failpoints.Wait(w.T, at)
		w.again(leader)
		w.works()
	}
}

// leaderStopped stops the leader at a point of an auto-offline until another leads, and has set
// others offline. When it is woken it goes on where it was.
func leaderStopped(at failpoint.Name) func(w *world) {
	return func(w *world) {
		leader, other := w.leader()
		leader.Failpoints.Arm(w.T, at, "stop")
		leader.Failpoints.Wait(w.T, at)
		w.serve(other.HTTP)
		harness.Eventually(w.T, "the other leads", func() bool {
			now, _ := w.leader()
			return now == other
		})
		w.works()
		leader.Failpoints.Resume(w.T, at, leader.Cont)
		w.serveAll()
	}
}

// writerKilled kills a replica that has committed a change, and not yet told Redis.
func writerKilled(w *world) {
	for range 3 {
		_, other := w.leader()
		other.Failpoints.Arm(w.T, failpoint.Applying, "kill 5")
		other.Failpoints.Wait(w.T, failpoint.Applying)
		w.again(other)
	}
}

// writerStopped wakes a replica seconds after its commit: what it brings is old by then.
func writerStopped(w *world) {
	for range 3 {
		leader, other := w.leader()
		other.Failpoints.Arm(w.T, failpoint.Applying, "stop 5")
		other.Failpoints.Wait(w.T, failpoint.Applying)
		w.serve(leader.HTTP)
		harness.Lasting(time.Second)
		other.Failpoints.Resume(w.T, failpoint.Applying, other.Cont)
		w.serveAll()
	}
}
