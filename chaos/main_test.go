package chaos

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) {
	if id := os.Getenv(harness.AsLoadProcess); id != "" {
		if err := harness.RunLoad(id); err != nil {
			fmt.Fprintln(os.Stderr, "load process", id, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	// Scenarios wait more than they work: two cores carry eight of them.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	redistest.Main(reported{m})
}

// reported writes a report of the tests that it runs.
type reported struct{ *testing.M }

func (r reported) Run() (code int) {
	defer writeReport()
	return r.M.Run()
}
