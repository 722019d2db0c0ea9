package availability

import (
	"os"
	"testing"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// row is one way in which things break.
type row struct {
	name    string
	short   bool // it is part of make test
	evicts  bool // Redis drops keys by itself
	emptied bool // Redis is, while an auto-offline is about to commit
	holds   bool // nobody goes offline for silence for a while after the fault
	standby bool // another Postgres follows the first
	more    int  // mitras besides the usual ones
	fault   func(w *world)
}

func matrix() []row {
	return []row{
		{name: "NoFault", fault: func(*world) {}},

		{name: "LeaderKilledBetweenMarkAndTransaction", short: true, fault: leaderKilled(failpoint.Condemned)},
		{name: "LeaderKilledBeforeTheCommit", fault: leaderKilled(failpoint.Confirmed)},
		{name: "LeaderKilledBetweenCommitAndApply", fault: leaderKilled(failpoint.Flipped)},
		{name: "LeaderStoppedBetweenMarkAndTransaction", fault: leaderStopped(failpoint.Condemned)},
		{name: "LeaderStoppedBeforeTheCommit", fault: leaderStopped(failpoint.Confirmed)},
		{name: "LeaderStoppedBetweenCommitAndApply", fault: leaderStopped(failpoint.Flipped)},
		{name: "PingsBetweenMarkAndTransaction", fault: pings(failpoint.Condemned)},
		{name: "PingsBeforeTheCommit", fault: pings(failpoint.Confirmed)},
		{name: "WriterKilledBetweenCommitAndApply", fault: writerKilled},
		{name: "WriterStoppedBetweenCommitAndApply", fault: writerStopped},

		{name: "PostgresKilled", short: true, fault: postgresKilled},
		{name: "PostgresAwayForLonger", fault: postgresAway},
		{name: "PostgresFrozen", fault: postgresFrozen},
		{name: "PostgresSlow", fault: postgresSlow},
		{name: "PostgresSetBack", short: true, fault: postgresSetBack},
		{name: "PostgresSetBackWhileRedisIsAway", fault: postgresSetBackWhileRedisIsAway},
		{name: "PostgresRecovers", short: true, fault: postgresRecovers},
		{name: "PostgresConnectionsEnd", fault: postgresConnectionsEnd},
		{name: "PostgresLocked", fault: postgresLocked},
		{name: "PostgresFailedOver", standby: true, fault: postgresFailedOver},
		{name: "DeadlocksForced", fault: deadlocksForced},
		{name: "Truncated", fault: truncated},
		{name: "TriggersOff", fault: triggersOff},

		{name: "Flushed", short: true, fault: flushed},
		{name: "FlushedWhileSeeding", fault: flushedWhileSeeding},
		{name: "FlushedBeforeTheCommit", emptied: true, fault: flushedBeforeTheCommit},
		{name: "RedisRestartedWithItsFile", fault: redisRestarted(true)},
		{name: "RedisRestartedWithoutItsFile", fault: redisRestarted(false)},
		{name: "RedisRolledBack", fault: redisRolledBack},
		{name: "RedisEvicts", evicts: true, fault: redisEvicts},
		{name: "RedisCutOff", fault: redisCutOff},
		{name: "RedisSlow", fault: redisSlow},
		{name: "RepliesLost", fault: repliesLost},
		{name: "LeaderCutOff", fault: leaderCutOff},
		{name: "Corrupted", fault: corrupted},
		{name: "Poisoned", emptied: true, fault: poisoned},

		{name: "EverythingAway", fault: everythingAway},
		{name: "MostFallSilentAtOnce", more: 30, holds: true, fault: mostFallSilent},
		{name: "PingNotRequired", fault: pingNotRequired},
	}
}

// givenProgram names a program that is to be used as it is, in place of one built here.
const givenProgram = "ROLLCALL_AVAILABILITY"

func program(t *testing.T) string {
	t.Helper()
	if binary := os.Getenv(givenProgram); binary != "" {
		return binary
	}
	return harness.BuildOf(t, "availability", "-race")
}

func TestMatrix(t *testing.T) {
	binary := program(t)
	for _, r := range matrix() {
		if testing.Short() && !r.short {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			newWorld(t, binary, r).run()
		})
	}
}

func TestTheReadmeNamesEveryRow(t *testing.T) {
	t.Parallel()
	for _, r := range matrix() {
		harness.InReadme(t, r.name, r.short)
	}
}
