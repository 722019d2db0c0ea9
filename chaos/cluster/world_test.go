package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// world is what a row works on: servers, replicas and their devices. Its methods are for the row's
// goroutine, but for what traffic uses.
type world struct {
	*testing.T
	row     row
	home    guard.Layout       // of the partition that the row is about
	cluster *redistest.Cluster // nil: servers behind Sentinel
	adding  sync.Mutex         // guards servers, once files are collected
	servers []*redistest.Server
	clients map[*redistest.Server]*redis.Client // one each
	rdb     redis.UniversalClient               // follows the keys wherever they go
	env     []string                            // tells replicas where Redis is
	halves  *halves                             // of a row that splits the fleet
	bus     *bus                                // of a row that cuts it
	files   string                              // where the nodes' files are kept
	ending  []func()                            // what must end before the files are read

	mu       sync.Mutex // guards all below
	rand     *rand.Rand
	replicas []*replica // that run
	names    int        // of replicas so far
	told     facts
	present  map[string]*socket // that is open, by IMEI
	homeless []string           // devices that were at a replica that died
	late     []departure
	err      error // of traffic
}

// replica is a process.
type replica struct {
	*process.Process
	id      string
	stopped bool
}

func newWorld(t *testing.T, r row, seed uint64) *world {
	r.replicas, r.devices = cmp.Or(r.replicas, 5), cmp.Or(r.devices, 200)
	r.nodeTimeout, r.patience = cmp.Or(r.nodeTimeout, 2*time.Second), cmp.Or(r.patience, 1)
	w := &world{
		T: t, row: r, home: base.Partition(0, r.partitions), rand: rand.New(rand.NewPCG(seed, uint64(len(r.name)))),
		present: map[string]*socket{}, clients: map[*redistest.Server]*redis.Client{},
		told: facts{
			layouts: layouts(r.partitions), interval: r.interval, ttl: r.ttl,
			killed: map[string]time.Time{}, lost: map[string]time.Time{}, sockets: map[string][]*socket{},
		},
	}
	// Where it fails the files are worth a look.
	w.files = t.TempDir()
	return w
}

// client is the one of the test's own for a server.
func (w *world) client(s *redistest.Server) *redis.Client {
	if w.clients[s] == nil {
		w.clients[s] = s.Client()
	}
	return w.clients[s]
}

// order has a replica do something, and returns its answer.
func (r *replica) order(what string, imeis ...string) (answer string, err error) {
	if _, err := fmt.Fprintln(r.In, what, strings.Join(imeis, " ")); err != nil {
		return "", fmt.Errorf("replica %s: %w", r.id, err)
	}
	if !r.Out.Scan() {
		return "", fmt.Errorf("replica %s is gone", r.id)
	}
	return r.Out.Text(), nil
}

// launch starts replicas that find Redis by env: r1, r2 and so on.
func (w *world) launch(env []string, n int) {
	w.Helper()
	var ids []string
	for range n {
		w.names++
		ids = append(ids, fmt.Sprintf("r%d", w.names))
	}
	for _, id := range ids {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asReplica+"="+id,
			envInterval+"="+w.row.interval.String(), envTTL+"="+w.row.ttl.String(),
			envParts+"="+strconv.Itoa(w.row.partitions), envShare+"="+fmt.Sprint(w.row.share))
		cmd.Env = append(cmd.Env, env...)
		log := filepath.Join(w.TempDir(), id+".log")
		p, err := process.Start(cmd, process.Options{Talk: true, Log: log})
		require.NoError(w, err)
		p.Out.Buffer(nil, longestOrder)
		w.Cleanup(func() {
			if w.Failed() {
				text := p.Log()
				w.Logf("end of the log of replica %s:\n%s", id, text[max(0, len(text)-4<<10):])
			}
			p.Kill()
		})
		w.mu.Lock()
		w.replicas = append(w.replicas, &replica{Process: p, id: id})
		w.mu.Unlock()
	}
}

// someone is the id of a replica that runs.
func (w *world) someone() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.running()
	return all[w.rand.IntN(len(all))].id
}

// running are the replicas that are not stopped. mu is held.
func (w *world) running() (all []*replica) {
	for _, r := range w.replicas {
		if !r.stopped {
			all = append(all, r)
		}
	}
	return all
}

// kill kills a replica. Its devices are nowhere.
func (w *world) kill(id string) {
	w.Helper()
	w.ends(id, func(r *replica) { r.Kill() })
}

// terminate has a replica release its devices, and stop.
func (w *world) terminate(id string) {
	w.Helper()
	w.ends(id, func(r *replica) {
		_, err := r.order("leave")
		require.NoError(w, err)
		require.Zero(w, r.ExitCode())
		r.Kill() // closes the pipes
	})
}

// ends notes what is known of a replica, and that its devices are nowhere.
func (w *world) ends(id string, how func(r *replica)) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.replica(id)
	require.NotNil(w, r)
	w.stalls(r)
	now := time.Now()
	for imei, s := range w.present {
		if s.owner == id {
			s.until = now
			delete(w.present, imei)
			w.homeless = append(w.homeless, imei)
		}
	}
	slices.Sort(w.homeless) // a map has no order, and the seed should give the same chances
	w.replicas = slices.DeleteFunc(w.replicas, func(other *replica) bool { return other == r })
	how(r)
	w.told.killed[id] = time.Now()
}

// stalls notes when a replica did not run. mu is held.
func (w *world) stalls(r *replica) {
	w.Helper()
	text, err := r.order("stalls")
	require.NoError(w, err)
	var stalls []outage
	require.NoError(w, json.Unmarshal([]byte(text), &stalls))
	w.told.outages = append(w.told.outages, stalls...)
}

// suspend stops a replica until the function that it returns is called.
func (w *world) suspend(id string) (resume func()) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.replica(id)
	require.NotNil(w, r)
	require.NoError(w, r.Stop())
	r.stopped = true
	back := w.cutOff(id)
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		require.NoError(w, r.Cont())
		r.stopped = false
		back()
	})
}

// cutOff notes that a replica cannot beat, until the function that it returns is called. mu is
// held, both times.
func (w *world) cutOff(id string) (back func()) {
	n := len(w.told.outages)
	w.told.outages = append(w.told.outages, outage{ID: id, From: time.Now()})
	return func() { w.told.outages[n].To = time.Now() }
}

// ready waits until deletes may begin.
func (w *world) ready() {
	w.Helper()
	grace := guard.Timing{Interval: w.row.interval, TTL: w.row.ttl}.Grace()
	harness.Eventually(w, "Redis has been listened to for long enough", func() bool {
		r, err := guard.ReadWitness(w.Context(), w.rdb, w.home)
		return err == nil && !r.Since.IsZero() && r.LastTick.Sub(r.Since) > grace
	})
}

// differs is what is not as it should be at rest; nil: nothing.
func (w *world) differs() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	entries := int64(0)
	for _, layout := range w.told.layouts {
		n, err := w.rdb.HLen(w.Context(), layout.Registry()).Result()
		if err != nil {
			return err
		}
		entries += n
	}
	if int(entries) != len(w.present) {
		return fmt.Errorf("%d entries of %d devices", entries, len(w.present))
	}
	want := make([]map[string]string, w.row.partitions)
	for k := range want {
		want[k] = map[string]string{}
	}
	for imei, s := range w.present {
		want[guard.PartitionOf(imei, w.row.partitions)][imei] = s.owner
	}
	for k, layout := range w.told.layouts {
		if err := w.partitionDiffers(want[k], layout); err != nil {
			return fmt.Errorf("partition %d: %w", k, err)
		}
	}
	return nil
}

// partitionDiffers is what is not as it should be in a partition that is to have these entries. mu
// is held.
func (w *world) partitionDiffers(want map[string]string, layout guard.Layout) error {
	ctx := w.Context()
	is, err := w.rdb.HGetAll(ctx, layout.Registry()).Result()
	if err != nil {
		return err
	}
	indexes, ids := map[string][]string{}, []string{}
	for imei, owner := range want {
		if is[imei] != owner {
			return fmt.Errorf("%s is at %s, and its entry names %q", imei, owner, is[imei])
		}
		indexes[owner] = append(indexes[owner], imei)
	}
	if len(is) != len(want) {
		return fmt.Errorf("%d entries of %d devices", len(is), len(want))
	}
	for _, r := range w.replicas {
		ids = append(ids, r.id)
		index, err := w.rdb.SMembers(ctx, layout.Devices(r.id)).Result()
		slices.Sort(index)
		slices.Sort(indexes[r.id])
		if err != nil || !slices.Equal(index, indexes[r.id]) {
			return fmt.Errorf("index of %s: %d of %d: %w", r.id, len(index), len(indexes[r.id]), err)
		}
	}
	roster, err := w.rdb.SMembers(ctx, layout.Roster()).Result()
	slices.Sort(roster)
	slices.Sort(ids)
	if err != nil || !slices.Equal(roster, ids) {
		return fmt.Errorf("the roster has %v, and %v live: %w", roster, ids, err)
	}
	return nil
}

// atRest waits until registry, indexes and roster are what the replicas and their devices are.
func (w *world) atRest() (took time.Duration) {
	w.Helper()
	begun := time.Now()
	var err error
	for range w.row.patience {
		if harness.Becomes(func() bool { err = w.differs(); return err == nil }) {
			return time.Since(begun)
		}
	}
	require.NoError(w, err, "it never comes to rest")
	return time.Since(begun)
}
