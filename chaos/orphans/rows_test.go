package orphans

import (
	"os"
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// row is one way in which things break.
type row struct {
	name  string
	short bool // it is part of make test
	// loses: signs of life, marks or the log are lost. Then rooms without a channel cannot be told
	// from dead ones, and there is nothing left to compare counts with.
	loses  bool
	evicts bool // keys go by the server's hand
	fault  func(w *world)
}

func matrix() []row {
	return []row{
		{name: "NoFault", fault: func(*world) {}},
		{name: "LeaderKilledBeforeTheDelete", short: true, fault: leaderKilled(failpoint.BeforeScript)},
		{name: "LeaderStoppedPastItsLease", short: true, fault: leaderStopped},
		{name: "WorkersKilledInTurn", fault: killedInTurn},
		{name: "RedisRestartedWithItsFile", fault: restarted(true)},
		{name: "RedisRestartedWithoutItsFile", loses: true, fault: restarted(false)},
		{name: "RedisEvicts", loses: true, evicts: true, fault: evicts},
		{name: "Flushed", short: true, loses: true, fault: flushed},
		{name: "LargeThings", fault: largeThings},
	}
}

// givenCleanup names a program that is to be used as it is, in place of one built here.
const givenCleanup = "ROLLCALL_CLEANUP"

func TestMatrix(t *testing.T) {
	binary := os.Getenv(givenCleanup)
	if binary == "" {
		binary = harness.BuildOf(t, "cleanup")
	}
	for _, r := range matrix() {
		if !r.short && !redistest.Asked() {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			newWorld(t, binary, r).run()
		})
	}
}

func TestThePageNamesEveryRow(t *testing.T) {
	t.Parallel()
	for _, r := range matrix() {
		harness.OnThePage(t, "../..", r.name)
	}
}
