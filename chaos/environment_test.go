package chaos

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// world is the environment of one row: what happens to it, and what becomes of it.
type world struct {
	*base
	row      row
	twin     bool // no fault at all, only what surrounds it
	fault    fault
	began    time.Time
	over     time.Time    // when the faults ended
	evidence *judge.Facts // to the judge, the last time

	noting sync.Mutex // guards result
	result result
}

func newWorld(t *testing.T, binary string, r row) *world {
	w := &world{
		base: newBase(t, binary, seed(t), uint64(r.nr), r.devices, r.settings),
		row:  r, twin: os.Getenv("ROLLCALL_TWIN") != "", began: time.Now(),
	}
	t.Cleanup(w.finish)
	return w
}
