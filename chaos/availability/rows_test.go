package availability

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
	fault func(w *world)
}

func matrix() []row {
	return []row{
		{name: "NoFault", fault: func(*world) {}},

		{name: "LeaderKilledBeforeTheCommit", short: true, fault: leaderKilled(failpoint.Confirmed)},
		{name: "LeaderKilledBetweenCommitAndApply", fault: leaderKilled(failpoint.Flipped)},
		{name: "LeaderStoppedBeforeTheCommit", fault: leaderStopped(failpoint.Confirmed)},
		{name: "LeaderStoppedBetweenCommitAndApply", fault: leaderStopped(failpoint.Flipped)},
		{name: "WriterKilledBetweenCommitAndApply", fault: writerKilled},
		{name: "WriterStoppedBetweenCommitAndApply", fault: writerStopped},

		{name: "PostgresKilled", short: true, fault: postgresKilled},
		{name: "PostgresFrozen", fault: postgresFrozen},

		{name: "FlushedWhileSeeding", short: true, fault: flushedWhileSeeding},
		{name: "RedisSlow", fault: redisSlow},
		{name: "RepliesLost", fault: repliesLost},

		{name: "EverythingAway", fault: everythingAway},
	}
}

// givenProgram names a program that is to be used as it is, in place of one built here.
const givenProgram = "ROLLCALL_AVAILABILITY"

func program(t *testing.T) string {
	t.Helper()
	if binary := os.Getenv(givenProgram); binary != "" {
		return binary
	}
	return harness.BuildOf(t, "availability")
}

func TestMatrix(t *testing.T) {
	binary := program(t)
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
