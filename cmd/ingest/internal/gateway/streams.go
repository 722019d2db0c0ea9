package gateway

import (
	"strings"

	"github.com/rollcall-redis/rollcall/guard"
)

// Stream is the name of the stream of decoded records where there is one; [DeadSuffix] makes it
// that of the dead letters.
const (
	Stream     = "telemetry:teltonika"
	DeadSuffix = ":dead"
)

// streams names so many streams, a power of two. The records of a device are in the stream with the
// index guard.PartitionOf(imei, n).
//
// One stream is named base. Of more, what stands behind base's last colon becomes a hash tag, which
// guard.Layout.Partition divides: telemetry:{teltonika:16:05:21}. So streams lie evenly on the
// masters of a Redis Cluster. Their slots are not those of the registry's partitions, but for
// chance: a slot with a long stream takes long to move.
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
