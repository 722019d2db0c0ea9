package cluster

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) {
	if id := os.Getenv(asReplica); id != "" {
		if err := runReplica(id); err != nil {
			fmt.Fprintln(os.Stderr, "replica", id, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	redis.SetLogger(quiet{}) // it tells of each connection that was refused
	// Rows wait more than they work: two cores carry four of them, with their servers and replicas.
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	redistest.Main(tests{m})
}

// tests are this package's. What they evicted is recorded when they are over.
type tests struct{ *testing.M }

func (m tests) Run() (code int) {
	code = m.M.Run()
	tally.mu.Lock()
	defer tally.mu.Unlock()
	for _, servers := range []string{"Cluster", "Sentinel"} {
		if err := harness.Record(servers, tally.evictions[servers], tally.wrong[servers]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// tally is what was judged in this process, by servers.
var tally = struct {
	mu               sync.Mutex
	evictions, wrong map[string]int
}{evictions: map[string]int{}, wrong: map[string]int{}}

func (w *world) tally(v *verdict) {
	servers := "Cluster"
	if w.cluster == nil {
		servers = "Sentinel"
	}
	tally.mu.Lock()
	defer tally.mu.Unlock()
	tally.evictions[servers] += v.entries()
	tally.wrong[servers] += len(v.wrong)
}
