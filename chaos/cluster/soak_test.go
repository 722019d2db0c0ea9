package cluster

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// atRandom is what a world of TestEverythingAtRandom begins with: besides the partitions and the
// timing, which chance draws.
var atRandom = row{
	name: "soak", replicas: 8, devices: 96_000, start: threeMasters,
	// A busy machine is to have the faults that were drawn, and few more; it keeps sweeps to a fifth
	// of their share nearly all the time.
	nodeTimeout: 5 * time.Second, patience: 5, share: 1,
}

// A deck are the faults of which a world has each once. Each kills, stops or ends at least one of
// ours, so that there is something to evict meanwhile.
var deck = []struct {
	name string
	do   func(w *world)
}{
	{"a master is killed and comes back", masterKilled},
	{"a master is stopped until its replica leads, and wakes", masterStopped},
	{"a master is cut off from all others", masterCutOff},
	{"the link of two masters is cut", linkCut},
	{"a replica is promoted that lacks a second", replicaLags},
	{"a slot moves by key", movedByKey},
	{"slots move by redis-cli reshard", movedByReshard},
	{"slots move by redis-cli rebalance", rebalanced},
	{"a slot moves while its source dies", sourceDies},
	{"a heartbeat moves long before the rest", heartbeatFirst},
	{"a replica takes over by order", func(w *world) {
		r := w.replicaOf(w.master())
		w.kill(w.someone())
		harness.Eventually(w, "the order is followed", func() bool { // it times out on a busy machine
			_ = w.client(r).Do(w.Context(), "CLUSTER", "FAILOVER").Err() // or one is under way
			harness.Lasting(w.row.interval)
			return role(w, r) == "master"
		})
		w.promoted(r)
	}},
	{"a replica takes over and asks nobody", func(w *world) {
		r := w.replicaOf(w.master())
		w.kill(w.someone())
		w.cluster.TakeOver(r)
		w.promoted(r)
	}},
	{"most masters are killed and come back", func(w *world) {
		m := w.master()
		other := w.other(m)
		w.kill(w.someone())
		m.Kill()
		other.Kill()
		harness.Lasting(w.row.interval)
		w.restart(m, other)
	}},
	{"a replica of ours stops for longer than its heartbeat lasts", func(w *world) {
		resume := w.suspend(w.someone())
		harness.Lasting(w.row.ttl * 3 / 2)
		resume()
	}},
	{"two of ours are killed", func(w *world) {
		w.kill(w.someone())
		w.kill(w.someone())
	}},
	{"one of ours ends, and another is killed", func(w *world) {
		w.terminate(w.someone())
		w.kill(w.someone())
	}},
}

func rebalanced(w *world) {
	w.kill(w.someone())
	if out, err := w.tryCLI("rebalance", w.master().Addr()); err != nil {
		w.Logf("redis-cli gave up: ...%s", out[max(0, len(out)-200):])
	}
}

// TestEverythingAtRandom brings up one Cluster after the other, each for one deck of faults, until
// ROLLCALL_DURATION is over; but one, in any case. After each fault all devices that are anywhere
// must be found there. What the nodes of a Cluster recorded is judged at its end, and then gone: so
// this can go on for as long as one likes.
func TestEverythingAtRandom(t *testing.T) {
	redistest.OnlyIfAsked(t)
	lasts := time.Duration(0)
	if text := os.Getenv("ROLLCALL_DURATION"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err, "ROLLCALL_DURATION")
	}
	end, evicted := time.Now().Add(lasts), 0
	for n, seed := 1, harness.Seed(); n == 1 || time.Now().Before(end); n, seed = n+1, rand.Uint64() {
		t.Run(fmt.Sprintf("ROLLCALL_SEED=%d", seed), func(t *testing.T) {
			evicted += oneDeck(t, seed, func() bool { return n == 1 || time.Now().Before(end) })
		})
		t.Logf("%d entries evicted in %d Clusters", evicted, n)
		if t.Failed() {
			return
		}
	}
}

// served returns when all slots are served. On a busy machine a master fails over of itself, in the
// middle of a move too: that is left open, as after any such end, and mended as by an operator.
func (w *world) served() {
	w.Helper()
	for end := time.Now().Add(w.outlasts()); time.Now().Before(end); {
		if w.whole() {
			break
		}
		harness.Lasting(harness.PatiencePause)
	}
	if !w.whole() {
		w.Log("not all slots are served: redis-cli --cluster fix")
		w.cli("fix", w.cluster.Nodes[0].Addr())
	}
	w.cluster.AwaitOK()
}

// whole tells whether every node says that all slots are served, and none is on the move.
func (w *world) whole() bool {
	for _, n := range w.cluster.Nodes {
		ctx, c := w.Context(), w.client(n)
		moving := strings.Contains(c.ClusterNodes(ctx).Val(), "[")
		if moving || !strings.Contains(c.ClusterInfo(ctx).Val(), "cluster_state:ok") {
			return false
		}
	}
	return true
}

// oneDeck plays a deck for as long as more says so, and returns how many entries were evicted.
func oneDeck(t *testing.T, seed uint64, more func() bool) int {
	chance := rand.New(rand.NewPCG(seed, 0))
	r := atRandom
	r.partitions = []int{1, 4, 4, 16}[chance.IntN(4)]
	r.interval, r.ttl = quickInterval, quickTTL
	if chance.IntN(4) == 0 {
		r.interval, r.ttl = slowInterval, slowTTL
	}
	w := newWorld(t, r, seed)
	w.Logf("%d partitions, a heartbeat each %s lasts %s", r.partitions, r.interval, r.ttl)
	r.start(w)
	w.collect()
	var v *verdict
	defer func() {
		if v == nil { // whatever went wrong, this is worth to know
			v = w.verdict()
			w.tally(v)
			t.Log("the oracle's verdict:", v.wrong)
		}
	}()
	w.theBus()
	w.connect()
	w.atRest()
	for _, i := range chance.Perm(len(deck)) {
		if !more() {
			break
		}
		w.home = w.told.layouts[chance.IntN(r.partitions)]
		begun, swept := time.Now(), chance.IntN(4) > 0
		stop := w.traffic()
		deck[i].do(w)
		w.served()
		lasted := time.Since(begun)
		if !swept { // who comes takes what is being swept
			w.joins()
		}
		stop()
		rest := w.atRest()
		w.Logf("%s: %s, at rest %s later", deck[i].name, lasted.Round(time.Millisecond), rest.Round(time.Millisecond))
		w.joins()
	}
	w.atRest()
	v = w.verdict()
	w.accepts(v)
	require.Positive(w, v.entries())
	w.counted()
	return v.entries()
}
