package chaos

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// environment is the environment of one row: what happens to it, and what becomes of it.
type environment struct {
	*harness.Environment
	row      row
	twin     bool // no fault at all, only what surrounds it
	fault    fault
	began    time.Time
	over     time.Time    // when the faults ended
	evidence *judge.Facts // to the judge, the last time

	noting sync.Mutex // guards result
	result result
}

func newEnvironment(t *testing.T, binary string, r row) *environment {
	w := &environment{
		Environment: harness.New(t, binary, harness.Seed(), uint64(r.nr), r.devices, r.settings),
		row:         r, twin: os.Getenv("ROLLCALL_TWIN") != "", began: time.Now(),
	}
	t.Cleanup(w.finish)
	return w
}

// entries are the registry's, as it is.
func (w *environment) entries() map[string]string {
	return w.HGetAll(w.Context(), w.Registry()).Val()
}

// unindexed tells whether an instance's index is gone.
func (w *environment) unindexed(id string) bool {
	return w.SCard(w.Context(), w.Layout.Devices(id)).Val() == 0
}

// beats tells whether an instance has a heartbeat.
func (w *environment) beats(id string) bool {
	return w.Exists(w.Context(), w.Heartbeat(id)).Val() == 1
}

// lease is its token; "": nobody has it.
func (w *environment) lease() string { return w.Get(w.Context(), w.Lease()).Val() }
