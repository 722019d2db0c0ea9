package gateway

import (
	"strings"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// Stream is the name of the only record stream; [DeadSuffix] after it names its dead letters.
const (
	Stream     = "telemetry:teltonika"
	DeadSuffix = ":dead"
)

// streams returns the names of n streams, a power of two.
//
// The part after base's last colon becomes a hash tag, divided as by guard.Layout.Partition. This
// spreads the streams evenly over a Redis Cluster, in other slots than the registry's partitions: a
// slot with a long stream takes long to move.
func streams(base string, n int) []string {
	if n == 1 {
		return []string{base}
	}
	at := strings.LastIndexByte(base, ':') + 1
	whole := guard.Layout{Prefix: base[:at] + "{" + base[at:] + "}"}
	names := make([]string, n)
	for k := range names {
		names[k] = whole.Partition(k, n).Prefix
	}
	return names
}
