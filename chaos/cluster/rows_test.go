package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// row is one way in which things break.
type row struct {
	name          string
	short         bool // it is part of make test
	partitions    int
	interval, ttl time.Duration
	start         func(w *world) // Redis and the replicas
	fault         func(w *world)

	replicas, devices int           // of ours; 0: five with 200
	nodeTimeout       time.Duration // 0: two seconds
	patience          int           // until all is at rest, times that of the harness; 0: once
	share             float64       // of Redis' time for sweeps; 0: the janitor's default
}

// Heartbeats of rows. With the quick ones a failover takes longer than GAP, so that the hold is
// "gap". With the slow ones it does not.
const (
	quickInterval, quickTTL = time.Second, 5 * time.Second
	slowInterval, slowTTL   = 2 * time.Second, 20 * time.Second
)

func matrix() []row {
	quick := func(name string, short bool, start, fault func(*world)) row {
		return row{
			name: name, short: short, partitions: 1,
			interval: quickInterval, ttl: quickTTL, start: start, fault: fault,
		}
	}
	slow := func(name string, start, fault func(*world)) row {
		return row{
			name: name, partitions: 1, interval: slowInterval, ttl: slowTTL, start: start, fault: fault,
		}
	}
	four := func(name string, fault func(*world)) row {
		return row{
			name: name, partitions: 4, interval: quickInterval, ttl: quickTTL, start: threeMasters, fault: fault,
		}
	}
	return append([]row{
		quick("MasterKilled", true, threeMasters, masterKilled),
		quick("MasterStoppedAndWoken", false, threeMasters, masterStopped),
		quick("MasterCutOffFromTheOthers", false, threeMasters, masterCutOff),
		quick("LinkOfTwoMastersCut", false, threeMasters, linkCut),
		quick("PromotedReplicaLacksASecond", false, threeMasters, replicaLags),
		quick("SlotMovedByKey", true, threeMasters, movedByKey),
		four("SlotMovedByReshard", movedByReshard),
		slow("SlotMovesWhileItsSourceDies", threeMasters, sourceDies),
		slow("HeartbeatMovesLongBeforeTheRest", threeMasters, heartbeatFirst),
		four("ThreeMastersToFour", threeToFour),
		four("MasterOfSomePartitionsKilled", masterKilled),
		quick("SentinelMasterKilled", false, threeSentinels, sentinelMasterKilled),
		quick("SentinelSplit", false, sentinelHalves(), sentinelSplit),
		quick("SentinelSplitWithMinReplicas", false,
			sentinelHalves("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2"), sentinelSplitAndJudged),
	}, contendRows...)
}

func TestMatrix(t *testing.T) {
	for _, r := range matrix() {
		if !r.short && !redistest.Asked() {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, r, harness.Seed())
			begun := time.Now()
			r.start(w)
			w.collect()
			w.connect()
			w.atRest()
			w.Log("up and at rest after", time.Since(begun))
			stop := w.traffic()
			r.fault(w)
			w.Log("the fault is over after", time.Since(begun))
			stop()
			w.Log("at rest again after", w.atRest())
			v := w.verdict()
			w.accepts(v)
			for id := range w.told.killed {
				require.Positive(w, v.evicted[id], "nothing of %s was swept: this says nothing", id)
			}
			w.counted()
		})
	}
}

// threeMasters is a Cluster of three masters with a replica each, and five replicas of ours.
func threeMasters(w *world) {
	w.cluster = redistest.StartCluster(w.T, 3, 1, append(history.AppendOnly(),
		"--cluster-node-timeout", strconv.FormatInt(w.row.nodeTimeout.Milliseconds(), 10))...)
	w.servers = w.cluster.Nodes
	w.rdb = w.cluster.Client()
	var addrs []string
	for _, n := range w.cluster.Nodes {
		addrs = append(addrs, n.Addr())
	}
	w.env = []string{envNodes + "=" + strings.Join(addrs, ",")}
	w.launch(w.env, w.row.replicas)
}

// master is the server that has the partition, as most of the Cluster sees it.
func (w *world) master() *redistest.Server { return w.cluster.Owner(w.home.Registry()) }

// replicaOf is a replica of a master.
func (w *world) replicaOf(m *redistest.Server) *redistest.Server {
	w.Helper()
	for _, r := range w.nodes("slave") {
		if r.of == w.cluster.ID(m) {
			return r.Server
		}
	}
	w.Fatal("it has no replica")
	return nil
}

// other is a master that has slots, and is not that one.
func (w *world) other(m *redistest.Server) *redistest.Server {
	w.Helper()
	for _, n := range w.nodes("master") {
		if n.Server != m && len(n.slots) > 0 {
			return n.Server
		}
	}
	w.Fatal("there is no other")
	return nil
}

// node is a node of a Cluster, as another one sees it.
type node struct {
	*redistest.Server
	of    string   // the id of its master; "-": it is one
	slots []string // from-to
}

// nodes are those of a role that live, as any that answers sees them.
func (w *world) nodes(role string) (all []node) {
	w.Helper()
	known := ""
	for _, n := range w.cluster.Nodes {
		if known == "" {
			known = w.client(n).ClusterNodes(w.Context()).Val()
		}
	}
	for line := range strings.Lines(known) {
		words := strings.Fields(line) // id, address, flags, master, two times, epoch, link, slots
		flags := strings.Split(words[2], ",")
		if !slices.Contains(flags, role) || slices.Contains(flags, "fail") {
			continue
		}
		for _, n := range w.cluster.Nodes {
			if strings.HasPrefix(words[1], n.Addr()+"@") {
				all = append(all, node{n, words[3], words[8:]})
			}
		}
	}
	return all
}

// slots are those of a master, in their order.
func (w *world) slots(m *redistest.Server) (all []int) {
	w.Helper()
	for _, n := range w.nodes("master") {
		if n.Server != m {
			continue
		}
		for _, span := range n.slots {
			from, to, _ := strings.Cut(span, "-")
			first, err := strconv.Atoi(from)
			require.NoError(w, err, span) // or one is on the move
			last, err := strconv.Atoi(cmp.Or(to, from))
			require.NoError(w, err, span)
			for slot := first; slot <= last; slot++ {
				all = append(all, slot)
			}
		}
	}
	return all
}

// promoted waits until a replica leads and an owner beats there.
func (w *world) promoted(r *redistest.Server) {
	w.Helper()
	w.beats(r, w.elected(r))
}

// elected waits until a replica leads.
func (w *world) elected(r *redistest.Server) (since time.Time) {
	w.Helper()
	begun := time.Now()
	harness.Eventually(w, "the replica leads", func() bool { return role(w, r) == "master" })
	w.Logf("a replica leads after %s", time.Since(begun).Round(time.Millisecond))
	return time.Now()
}

// beats waits until an owner beats at a master after a time.
func (w *world) beats(m *redistest.Server, since time.Time) {
	w.Helper()
	w.mu.Lock()
	owners := w.running()
	w.mu.Unlock()
	harness.Eventually(w, "an owner beats at the new master", func() bool {
		return slices.ContainsFunc(owners, func(one *replica) bool {
			at, _, _ := strings.Cut(w.client(m).Get(w.Context(), w.home.Heartbeat(one.id)).Val(), "/")
			ms, err := strconv.ParseInt(at, 10, 64)
			return err == nil && time.UnixMilli(ms).After(since)
		})
	})
	w.Logf("an owner beats there %s later", time.Since(since).Round(time.Millisecond))
}

// counted: in each partition the total beside the log is the sum of its records.
func (w *world) counted() {
	w.Helper()
	for _, layout := range w.told.layouts {
		records, err := w.rdb.XRange(w.Context(), layout.Log(), "-", "+").Result()
		require.NoError(w, err)
		sum := 0
		for _, r := range records {
			n, _ := strconv.Atoi(fmt.Sprint(r.Values["count"])) // that which opens a term has none
			sum += n
		}
		total, err := w.rdb.HGet(w.Context(), layout.Witness(), "evicted_total").Int()
		if !errors.Is(err, redis.Nil) { // nothing was evicted yet
			require.NoError(w, err)
		}
		require.Equal(w, sum, total)
	}
}

func TestThePageNamesEveryRow(t *testing.T) {
	t.Parallel()
	for _, r := range matrix() {
		harness.OnThePage(t, "../..", r.name)
	}
}
