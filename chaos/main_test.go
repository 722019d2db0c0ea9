package chaos

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/rollcall-redis/rollcall/chaos/harness"
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
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		writeReport()
		os.Exit(status)
	}))
}
