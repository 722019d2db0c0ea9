package orphans

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// leaderKilled kills the leader at a point, as it works on orphans, or leads next.
func leaderKilled(at failpoint.Name) func(w *world) {
	return func(w *world) {
		leader, other := w.leader()
		leak := w.backend.leak()
		if at == failpoint.Opening { // the leader has done so already: the other will
			w.kill(leader)
			leader = other
		}
		leader.Failpoints.Arm(w.T, at, "kill")
		leader.Failpoints.Wait(w.T, at)
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
	leader.Failpoints.Arm(w.T, failpoint.BeforeScript, "stop")
	leak := w.backend.leak()
	leader.Failpoints.Wait(w.T, failpoint.BeforeScript)
	harness.Eventually(w.T, "the other leads", func() bool {
		now, _ := w.leader()
		return now == other
	})
	w.goes(leak)
	w.backend.again()
	leader.Failpoints.Resume(w.T, failpoint.BeforeScript, leader.Cont)
	harness.Eventually(w.T, "its delete is refused", func() bool { return leader.batches.Counts()["FENCED"] > 0 })
}

// killedInTurn kills whoever leads, at every point between judging and counting, several times.
func killedInTurn(w *world) {
	for _, at := range []failpoint.Name{
		failpoint.BeforeScript, failpoint.AfterReply, failpoint.BeforeScript, failpoint.AfterReply,
	} {
		leaderKilled(at)(w)
	}
}

// repliesLost takes off answers to deletes, and deletes: each is counted once all the same.
func repliesLost(w *world) {
	for range 2 {
		leader, _ := w.leader()
		rules := []*proxy.Rule{
			leader.Proxy.LoseReply(harness.BatchesOf(layout), 1),
		}
		w.goes(w.backend.leak())
		rules = append(rules, leader.Proxy.LoseRequest(harness.BatchesOf(layout), 1))
		w.goes(w.backend.leak())
		for _, r := range rules {
			require.NotZero(w, r.Hits())
			r.End()
		}
	}
}

// catch holds the next request of any worker that matches, from begin on until meanwhile is over.
func (w *world) catch(match func(proxy.Request) bool, begin, meanwhile func()) {
	w.Helper()
	var caught []<-chan proxy.Request
	for _, k := range w.workers {
		c, release := k.Proxy.HoldNext(match)
		defer release()
		caught = append(caught, c)
	}
	begin()
	harness.Eventually(w.T, "a worker sends what is waited for", func() bool {
		return slices.ContainsFunc(caught, func(c <-chan proxy.Request) bool { return len(c) > 0 })
	})
	meanwhile()
}

// madeAnew makes an orphan anew under its old name, in each gap between the first look and the
// delete.
func madeAnew(w *world) {
	b := w.backend
	names := map[string]string{"reservations": "queue:reservation:", "queue": queue + " ", "bots": "bots:state:"}
	for _, rule := range []string{"reservations", "queue", "bots"} {
		marks := layout.Prefix + "orphan:marks:" + rule
		for gap, during := range []func(name string, dies, lives func()){
			func(name string, dies, lives func()) { // between the look and its mark
				w.catch(func(r proxy.Request) bool {
					return r.On(layout.Log(), marks) && slices.Contains(r, name)
				}, dies, lives)
			},
			func(name string, dies, lives func()) { // between the mark and the last look
				dies()
				harness.Eventually(w.T, name+" is marked", func() bool {
					return w.rdb.HExists(w.Context(), marks, name).Val()
				})
				lives()
			},
			func(name string, dies, lives func()) { // between the last look and the delete
				w.catch(func(r proxy.Request) bool {
					return harness.BatchesOf(layout)(r) && strings.Contains(strings.Join(r, " "), `"`+name+`"`)
				}, dies, lives)
			},
		} {
			id := fmt.Sprintf("anew-%s-%d", rule, gap)
			name := names[rule] + id
			during(name, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				require.Equal(w, name, b.diesAs(rule, id))
			}, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.livesAgain(rule, id)
			})
			w.goes(b.leak()) // a pass has been over it
			b.mu.Lock()
			key, member, _ := strings.Cut(name, " ")
			require.True(w, !b.lives(rule, id) || b.there(key, member), name) // it may have left meanwhile
			b.mu.Unlock()
		}
	}
}
