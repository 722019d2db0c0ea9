package availability

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given { // sixteen hammer in each row: two cores carry four of them
		if err := flag.Set("test.parallel", "4"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	pgtest.Main(m)
}
