package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/redistest"
)

const (
	devices = 200
	moves   = 30 * time.Millisecond // one device moves each
	linked  = 50 * time.Millisecond // so often new files of the nodes are looked for
)

// world is what a row works on: servers, replicas and their devices. Its methods are for the row's
// goroutine, but for what traffic uses.
type world struct {
	*testing.T
	row     row
	home    guard.Layout // of the partition that the row is about
	rand    *rand.Rand
	cluster *redistest.Cluster // nil: servers behind Sentinel
	servers []*redistest.Server
	rdb     redis.UniversalClient // follows the keys wherever they go
	env     []string              // tells replicas where Redis is
	halves  *halves               // of a row that splits the fleet
	files   string                // where the nodes' files are kept
	ending  []func()              // what must end before the files are read

	mu       sync.Mutex // guards all below
	replicas []*replica // that run
	told     facts
	present  map[string]int // IMEI -> its open socket in told.sockets
	homeless []string       // devices that were at a replica that died
	late     []departure
	err      error // of traffic
}

// replica is a process.
type replica struct {
	*process.Process
	id      string
	stopped bool
}

func newWorld(t *testing.T, r row) *world {
	w := &world{
		T: t, row: r, home: base.Partition(0, r.partitions), rand: rand.New(rand.NewPCG(seed(), uint64(len(r.name)))),
		present: map[string]int{},
		told: facts{
			layouts: layouts(r.partitions), interval: r.interval, ttl: r.ttl, killed: map[string]time.Time{}, lost: map[string]time.Time{},
		},
	}
	// Where it fails the files are worth a look.
	w.files = t.TempDir()
	return w
}

// order has a replica do something, and returns its answer.
func (r *replica) order(what, imei string) (answer string, err error) {
	line := strings.TrimSpace(what + " " + imei)
	if _, err := fmt.Fprintln(r.In, line); err != nil {
		return "", fmt.Errorf("replica %s: %w", r.id, err)
	}
	if !r.Out.Scan() {
		return "", fmt.Errorf("replica %s is gone", r.id)
	}
	return r.Out.Text(), nil
}

// launch starts replicas that find Redis by env.
func (w *world) launch(env []string, ids ...string) {
	w.Helper()
	for _, id := range ids {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asReplica+"="+id,
			envInterval+"="+w.row.interval.String(), envTTL+"="+w.row.ttl.String(),
			envParts+"="+strconv.Itoa(w.row.partitions))
		cmd.Env = append(cmd.Env, env...)
		log := filepath.Join(w.TempDir(), id+".log")
		p, err := process.Start(cmd, process.Options{Talk: true, Log: log})
		require.NoError(w, err)
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

// connect connects all devices, to the replicas by turns.
func (w *world) connect() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range devices {
		imei := fmt.Sprintf("86%013d", i)
		require.NoError(w, w.claim(imei, w.replicas[i%len(w.replicas)]))
	}
}

// claim lets a device connect to a replica, away from where it is. mu is held.
func (w *world) claim(imei string, to *replica) error {
	was, had := w.present[imei]
	if had {
		w.told.sockets[was].until = time.Now()
	}
	w.present[imei] = len(w.told.sockets)
	w.told.sockets = append(w.told.sockets, socket{imei: imei, owner: to.id, from: time.Now()})
	_, err := to.order("claim", imei)
	if err != nil || !had {
		return err
	}
	from := w.replica(w.told.sockets[was].owner)
	if from == nil || from.stopped || from == to {
		return nil
	}
	_, err = from.order("stale", imei)
	w.late = append(w.late, departure{imei, from})
	return err
}

// departure is a device that left a replica, which is to notice it.
type departure struct {
	imei string
	from *replica
}

// notice has replicas notice at most so many devices that left them. mu is held.
func (w *world) notice(most int) (err error) {
	var later []departure
	for i, d := range w.late {
		n, back := w.present[d.imei]
		switch {
		case i >= most || d.from.stopped:
			later = append(later, d)
		case !d.from.Runs() || back && w.told.sockets[n].owner == d.from.id:
		default:
			_, failed := d.from.order("release", d.imei)
			err = errors.Join(err, failed)
		}
	}
	w.late = later
	return err
}

// replica is the running one of an id, nil if there is none. mu is held.
func (w *world) replica(id string) *replica {
	for _, r := range w.replicas {
		if r.id == id {
			return r
		}
	}
	return nil
}

// traffic has devices move among the replicas that run, until the function that it returns is
// called. Then every device that is to be somewhere is there.
func (w *world) traffic() (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(moves)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				w.move()
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(end)
		<-ended
		w.mu.Lock()
		defer w.mu.Unlock()
		w.err = errors.Join(w.err, w.notice(len(w.late)))
	})
	w.Cleanup(stop)
	return stop
}

// move lets one device move, another come back, and a replica notice one that left.
func (w *world) move() {
	w.mu.Lock()
	defer w.mu.Unlock()
	var open []*replica
	for _, r := range w.replicas {
		if !r.stopped {
			open = append(open, r)
		}
	}
	if w.err != nil || len(open) == 0 {
		return
	}
	to := open[w.rand.IntN(len(open))]
	imei := fmt.Sprintf("86%013d", w.rand.IntN(devices))
	n, there := w.present[imei]
	if there {
		if at := w.replica(w.told.sockets[n].owner); at != to && at != nil && !at.stopped {
			w.err = w.claim(imei, to)
		}
	} else if len(w.homeless) > devices/20 && w.rand.IntN(5) == 0 { // some never come back
		i := w.rand.IntN(len(w.homeless))
		imei := w.homeless[i]
		w.homeless = slices.Delete(w.homeless, i, i+1)
		w.err = errors.Join(w.err, w.claim(imei, to))
	}
	w.err = errors.Join(w.err, w.notice(w.rand.IntN(3)))
}

// kill kills a replica. Its devices are nowhere.
func (w *world) kill(id string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.replica(id)
	require.NotNil(w, r)
	now := time.Now()
	for imei, n := range w.present {
		if w.told.sockets[n].owner == id {
			w.told.sockets[n].until = now
			delete(w.present, imei)
			w.homeless = append(w.homeless, imei)
		}
	}
	slices.Sort(w.homeless) // a map has no order, and the seed should give the same chances
	w.replicas = slices.DeleteFunc(w.replicas, func(other *replica) bool { return other == r })
	r.Kill()
	w.told.killed[id] = now
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
	harness.Eventually(w.T, "Redis has been listened to for long enough", func() bool {
		r, err := guard.ReadWitness(w.Context(), w.rdb, w.home)
		return err == nil && !r.Since.IsZero() && r.LastTick.Sub(r.Since) > max(grace, r.Largest)
	})
}

// differs is what is not as it should be at rest; nil: nothing.
func (w *world) differs() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for k, layout := range w.told.layouts {
		if err := w.partitionDiffers(k, layout); err != nil {
			return fmt.Errorf("partition %d: %w", k, err)
		}
	}
	return nil
}

// partitionDiffers is what is not as it should be in a partition. mu is held.
func (w *world) partitionDiffers(k int, layout guard.Layout) error {
	want, indexes, ids := map[string]string{}, map[string][]string{}, []string{}
	for imei, n := range w.present {
		if guard.PartitionOf(imei, w.row.partitions) == k {
			owner := w.told.sockets[n].owner
			want[imei] = owner
			indexes[owner] = append(indexes[owner], imei)
		}
	}
	ctx := w.Context()
	is, err := w.rdb.HGetAll(ctx, layout.Registry()).Result()
	if err != nil {
		return err
	}
	for imei := range want {
		if is[imei] != want[imei] {
			return fmt.Errorf("%s is at %s, and its entry names %q", imei, want[imei], is[imei])
		}
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
	if !harness.Becomes(func() bool { err = w.differs(); return err == nil }) {
		require.NoError(w, err, "it never comes to rest")
	}
	return time.Since(begun)
}

// collect keeps what every node writes, by links to its files: a node that takes over another's
// data deletes its own.
func (w *world) collect() {
	seen := map[uint64]bool{}
	look := func() {
		for _, s := range w.servers {
			paths, _ := filepath.Glob(filepath.Join(s.Dir(), "appendonlydir", "*.aof")) // the pattern is right
			for _, path := range paths {
				info, err := os.Stat(path)
				if err != nil {
					continue // it is gone
				}
				inode := info.Sys().(*syscall.Stat_t).Ino
				_, port, _ := net.SplitHostPort(s.Addr())
				if seen[inode] || os.Link(path, filepath.Join(w.files, fmt.Sprintf("%s-%d.aof", port, inode))) != nil {
					continue
				}
				seen[inode] = true
			}
		}
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for tick := time.NewTicker(linked); ; {
			select {
			case <-end:
				tick.Stop()
				look()
				return
			case <-tick.C:
				look()
			}
		}
	}()
	stop := sync.OnceFunc(func() {
		close(end)
		<-ended
	})
	w.ending = append(w.ending, stop)
	w.Cleanup(stop)
}

// judged judges what all nodes have written.
func (w *world) judged() *verdict {
	w.Helper()
	for _, end := range w.ending {
		end()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	require.NoError(w, w.err, "traffic")
	for _, r := range w.replicas {
		text, err := r.order("stalls", "")
		require.NoError(w, err)
		var stalls []outage
		require.NoError(w, json.Unmarshal([]byte(text), &stalls))
		w.told.outages = append(w.told.outages, stalls...)
	}
	paths, err := filepath.Glob(filepath.Join(w.files, "*.aof"))
	require.NoError(w, err)
	var all []recorded
	events := 0
	for _, path := range paths {
		h, err := readFile(path)
		require.NoError(w, err)
		port, _, _ := strings.Cut(filepath.Base(path), "-")
		all = append(all, recorded{net.JoinHostPort("127.0.0.1", port), h})
		events += len(h)
	}
	v := judge(all, w.told)
	w.Logf("%d events in %d files of %d nodes; evicted %v", events, len(paths), len(w.servers), v.evicted)
	if keep := os.Getenv(keptRuns); keep != "" {
		require.NoError(w, os.CopyFS(filepath.Join(keep, w.row.name), os.DirFS(w.files)))
	}
	require.Empty(w, v.wrong, oracleRejects)
	return v
}

const (
	// oracleRejects is said where the oracle finds something wrong.
	oracleRejects = "what the nodes have recorded must not be"
	// keptRuns names a folder that keeps the files of all runs.
	keptRuns = "ROLLCALL_KEEP_CLUSTER"
)
