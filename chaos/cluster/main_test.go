package cluster

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/redistest"
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
	redistest.Main(m)
}
