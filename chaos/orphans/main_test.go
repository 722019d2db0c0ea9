package orphans

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rollcall-redis/rollcall/orphan/mongodb/mongotest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Rows wait more than they work: two cores carry six of them.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	mongotest.Main(m)
}
