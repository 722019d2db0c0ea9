package cluster

import (
	"net"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// outlasts is longer than it takes a Cluster to find out that a node does not answer.
func (w *world) outlasts() time.Duration { return 3 * w.row.nodeTimeout }

func masterKilled(w *world) {
	m := w.master()
	r := w.replicaOf(m)
	w.kill(w.someone())
	m.Kill()
	w.promoted(r)
	w.restart(m)
	w.cluster.AwaitOK()
}

// What waits in the stopped master's sockets it does when it wakes, before it hears that another
// leads.
func masterStopped(w *world) {
	m := w.master()
	r := w.replicaOf(m)
	w.kill(w.someone())
	m.Stop()
	w.promoted(r)
	harness.Lasting(w.row.ttl)
	m.Cont()
	w.cluster.AwaitOK()
}

// The others take the master for dead, and it does not hear of that. Its clients reach it.
func masterCutOff(w *world) {
	m := w.master()
	r := w.replicaOf(m)
	w.kill(w.someone())
	mend := w.theBus().isolate(m)
	w.promoted(r)
	harness.Lasting(w.row.ttl)
	mend()
	harness.Eventually(w, "the former master follows", func() bool {
		return role(w, m) == "slave"
	})
	w.cluster.AwaitOK()
}

// One master alone takes another for dead: nothing happens.
func linkCut(w *world) {
	m := w.master()
	w.kill(w.someone())
	mend := w.theBus().cut(m, w.other(m))
	harness.Lasting(w.outlasts())
	mend()
	w.cluster.AwaitOK()
	require.Equal(w, m, w.master())
}

// What the master said last did not reach the replica that takes over.
func replicaLags(w *world) {
	m := w.master()
	r := w.replicaOf(m)
	w.kill(w.someone())
	r.Stop()
	harness.Lasting(1500 * time.Millisecond)
	m.Kill()
	r.Cont()
	w.promoted(r)
	w.restart(m)
	w.cluster.AwaitOK()
}

func movedByKey(w *world) {
	m := w.master()
	to := w.other(m)
	w.kill(w.someone())
	finish := w.cluster.BeginMove(w.home.Registry(), to)
	for _, key := range []string{w.home.Heartbeat(w.someone()), w.home.Registry(), w.home.Witness()} {
		w.cluster.MoveKey(key, to)
		harness.Lasting(w.row.interval / 2)
	}
	finish()
	require.Equal(w, to, w.master())
}

// restart starts all servers that died.
func (w *world) restart(died ...*redistest.Server) {
	w.Helper()
	for _, s := range died {
		s.Restart()
	}
	if w.bus != nil {
		w.bus.lead(died...)
	}
}

// cli runs redis-cli --cluster.
func (w *world) cli(args ...string) {
	w.Helper()
	out, err := w.tryCLI(args...)
	require.NoError(w, err, "%s", out)
}

func (w *world) tryCLI(args ...string) (out []byte, err error) {
	return exec.CommandContext(w.Context(), redistest.CLI(w.T), append([]string{"--cluster"}, args...)...).CombinedOutput()
}

// reshard has redis-cli move slots of the master away, the partition's among them. It gives up
// where a master of a busy machine fails over of itself, or a replica is late: then it is asked
// again.
func (w *world) reshard() {
	w.Helper()
	from := w.master()
	for tries := 1; w.master() == from; tries++ {
		out, err := w.tryCLI("reshard", from.Addr(), "--cluster-yes", "--cluster-slots", strconv.Itoa(w.upTo(w.home)),
			"--cluster-from", w.cluster.ID(from), "--cluster-to", w.cluster.ID(w.other(from)))
		if err == nil {
			harness.Eventually(w, "all nodes know", func() bool { return w.master() != from })
			return
		}
		require.Less(w, tries, mostTries, "%s", out)
		w.Logf("redis-cli gave up: ...%s", out[max(0, len(out)-200):])
		w.served()
	}
}

const mostTries = 5

// upTo is how many slots of its master must move, or that of a partition is not among them:
// redis-cli begins with the lowest.
func (w *world) upTo(l guard.Layout) int {
	w.Helper()
	return 1 + slices.Index(w.slots(w.cluster.Owner(l.Registry())), w.cluster.Slot(l.Registry()))
}

// The partition is one that goes soon. A master that has no slots left would be none any more, and
// two masters cannot outvote each other.
func movedByReshard(w *world) {
	w.kill(w.someone())
	w.home = slices.MinFunc(w.told.layouts, func(a, b guard.Layout) int { return w.upTo(a) - w.upTo(b) })
	w.reshard()
	w.cluster.AwaitOK()
}

// A replica of Redis does not know that a slot is on the move. So the one that takes over has the
// entries of an owner, and not its heartbeat, which lives on the other side. The owner does not
// run for less than its heartbeat lasts. A replica of Valkey knows it, and refuses the beats of all
// whose heartbeats have ended meanwhile until the move has.
func sourceDies(w *world) {
	m := w.master()
	r, to := w.replicaOf(m), w.other(m)
	w.ready()
	id := w.someone()
	resume := w.suspend(id)
	w.cluster.BeginMove(w.home.Registry(), to)
	w.cluster.MoveKey(w.home.Heartbeat(id), to)
	require.NoError(w, w.client(m).Wait(w.Context(), 1, time.Minute).Err())
	m.Kill()
	w.elected(r)
	w.restart(m)
	harness.Lasting(2 * w.row.interval) // the quick way looks once a second
	w.cli("fix", r.Addr())
	resume()
	w.kill(w.someone())
	w.cluster.AwaitOK()
}

// The heartbeat of an owner has moved, and the rest waits for longer than it lasts. Beats are
// refused all the time.
func heartbeatFirst(w *world) {
	m := w.master()
	to := w.other(m)
	w.ready()
	id := w.someone()
	finish := w.cluster.BeginMove(w.home.Registry(), to)
	w.cluster.MoveKey(w.home.Heartbeat(id), to)
	harness.Lasting(w.row.ttl)
	resume := w.suspend(id)
	finish()
	harness.Lasting(3 * w.row.interval)
	resume()
	w.kill(w.someone())
}

func threeToFour(w *world) {
	w.kill(w.someone())
	m := w.master()
	added := w.cluster.Add()
	w.adding.Lock()
	w.servers = w.cluster.Nodes
	w.adding.Unlock()
	w.cli("rebalance", m.Addr(), "--cluster-use-empty-masters")
	w.cluster.AwaitOK()
	if w.master() != added {
		w.cluster.BeginMove(w.home.Registry(), added)()
	}
}

func role(w *world, s *redistest.Server) string {
	said, err := w.client(s).Do(w.Context(), "ROLE").Slice()
	if err != nil || len(said) == 0 {
		return ""
	}
	return said[0].(string)
}

func hostPort(w *world, addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	require.NoError(w, err)
	return host, port
}
