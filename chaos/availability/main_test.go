package availability

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rollcall-redis/rollcall/internal/pgtest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // rows wait more than they work: two cores carry six of them
		if err := flag.Set("test.parallel", "6"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	pgtest.Main(m)
}
