package cluster

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// linked: so often new files of the nodes are looked for.
const linked = 50 * time.Millisecond

// collect keeps what every node writes, by links to its files: a node that takes over another's
// data deletes its own.
func (w *world) collect() {
	seen := map[uint64]bool{}
	look := func() {
		w.adding.Lock()
		servers := w.servers
		w.adding.Unlock()
		for _, s := range servers {
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

// accepts demands that nothing is wrong.
func (w *world) accepts(v *verdict) {
	w.Helper()
	require.NoError(w, w.err, "traffic")
	w.tally(v)
	if keep := os.Getenv(keptRuns); keep != "" {
		require.NoError(w, os.CopyFS(filepath.Join(keep, w.row.name), os.DirFS(w.files)))
	}
	require.Empty(w, v.wrong, oracleRejects)
}

// verdict judges what all nodes have written.
func (w *world) verdict() *verdict {
	w.Helper()
	for _, end := range w.ending {
		end()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.running() {
		w.stalls(r)
	}
	v, events := newVerdict(w.told), 0
	paths, err := filepath.Glob(filepath.Join(w.files, "*.aof"))
	require.NoError(w, err)
	for _, path := range paths { // one is held in memory at a time
		h, err := readFile(path)
		require.NoError(w, err)
		port, _, _ := strings.Cut(filepath.Base(path), "-")
		v.judge(recorded{net.JoinHostPort("127.0.0.1", port), h})
		events += len(h)
	}
	w.Logf("%d events in %d files of %d nodes; evicted %v", events, len(paths), len(w.servers), v.evicted)
	return v
}

const (
	// oracleRejects is said where the oracle finds something wrong.
	oracleRejects = "what the nodes have recorded must not be"
	// keptRuns names a folder that keeps the files of all runs.
	keptRuns = "ROLLCALL_KEEP_CLUSTER"
)
