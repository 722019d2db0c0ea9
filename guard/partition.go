package guard

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/slot"
)

// MostPartitions bounds how many partitions a fleet may have.
const MostPartitions = 1024

// PartitionOf is the partition of a device where there are so many: the CRC16 of its IMEI by which
// Redis Cluster finds slots (XMODEM), modulo partitions. PartitionOf("352093081452251", 16) is 3.
func PartitionOf(imei string, partitions int) int {
	return int(slot.CRC16(imei)) % partitions
}

// Partition is the layout of partition k of so many: a whole registry in one slot of its own. What
// people read is not divided: About, Timeline and Paused are those of l. Where there is one
// partition it is l itself.
//
// The hash tag of l, such as {rollcall}, becomes {rollcall:16:05:n}: the number of partitions, k in
// two digits at least, and the smallest n from 0 on with which the tag's slot is in the k-th of so
// many equal parts of the 16384 slots. So partitions lie evenly on masters that have equal ranges.
// A layout of another number of partitions names other keys. l must have a hash tag.
func (l Layout) Partition(k, partitions int) Layout {
	if partitions == 1 {
		return l
	}
	before, rest, _ := strings.Cut(l.Prefix, "{")
	tag, behind, _ := strings.Cut(rest, "}")
	for n := 0; ; n++ {
		name := fmt.Sprintf("%s:%d:%02d:%d", tag, partitions, k, n)
		if slot.Of(name)*partitions/slot.Count == k {
			return Layout{Prefix: before + "{" + name + "}" + behind, whole: l.Prefix}
		}
	}
}

// Partitions is the string that says how many partitions the registry has; absent: one.
func (l Layout) Partitions() string { return l.undivided() + "partitions" }

// Divided tells that these are the keys of one partition of several.
func (l Layout) Divided() bool { return l.whole != "" }

// undivided is the prefix of what partitions share.
func (l Layout) undivided() string {
	return cmp.Or(l.whole, l.Prefix)
}
