//go:build owners

package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// nodeRows are the rows of the matrix that a fleet of both languages has to pass, with the replicas
// that are owners in Node.js. One of the others leads.
var nodeRows = map[string][]string{
	"NoFault":                         {"two"}, // killed and terminated in turn, and started again
	"OwnerStoppedForHalfItsTTL":       {"two", "three"},
	"OwnerStoppedPastItsTTL":          {"two", "three"},
	"OwnerStoppedUntilItIsSwept":      {"two", "three"},
	"OneOwnerCutOff":                  {"two", "three"},
	"RestartedUnderItsID":             {"one"},
	"OlderProcessFrozen":              {"one"},
	"TwoProcessesOfOneID":             {"one"},
	"DeviceMovesWhileItsEntryIsSwept": {"two", "three"},
	"HealOfTheFormerOwner":            {"two", "three"},
	"LateWriteOfTheFormerOwner":       {"two", "three"},
	"LateWriteThatWasGivenUp":         {"two", "three"},
	"FleetHops":                       {"two", "three"},
	"RedisStopped":                    {"two", "three"},
	"RedisRestartedWithAOF":           {"two", "three"},
	"RedisRestartedEmpty":             {"two", "three"},
	"Flushed":                         {"two", "three"},
	"HeartbeatDeleted":                {"two", "three"},
	"MemoryFull":                      {"two", "three"},
}

// NODE is the folder that scripts/node prints.
func TestMatrixWithNodeOwners(t *testing.T) {
	gateway := filepath.Join(os.Getenv("NODE"), "test", "gateway.mjs")
	require.FileExists(t, gateway, "run by: make test-node")
	binary := harness.BuildIngest(t)
	rows := matrix()
	for name, ids := range nodeRows {
		n := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
		require.GreaterOrEqual(t, n, 0, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnvironment(t, binary, rows[n])
			for _, id := range ids {
				w.Programs[id] = gateway
			}
			rows[n].run(w)
			for _, r := range w.All {
				require.Equal(t, slices.Contains(ids, r.ID), r.Said("listening for devices", "language") == "node", r.ID)
			}
		})
	}
}
