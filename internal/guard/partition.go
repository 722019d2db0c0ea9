package guard

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/slot"
)

// MostPartitions is the largest number of partitions of a fleet.
const MostPartitions = 1024

// PartitionOf returns the partition of an id: its CRC16 (XMODEM), as in Redis Cluster, modulo
// partitions. PartitionOf("352093081452251", 16) is 3.
func PartitionOf(id string, partitions int) int {
	return int(slot.CRC16(id)) % partitions
}

// Partition returns the layout of partition k: a whole registry in a slot of its own. About,
// Timeline, Minutes and Paused are shared. With one partition it returns l itself.
//
// The hash tag of l, such as {rollcall}, becomes {rollcall:16:05:n}: the number of partitions, k in
// at least two digits, and the smallest n from 0 on that puts the tag's slot into the k-th of equal
// parts of the 16384 slots. That spreads partitions evenly over masters with equal ranges. Layouts
// with different numbers of partitions share no keys.
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

// Partitions is the string with the registry's number of partitions; if absent, one.
func (l Layout) Partitions() string { return l.undivided() + "partitions" }

// Divided reports whether these are the keys of one partition of several.
func (l Layout) Divided() bool { return l.whole != "" }

func (l Layout) undivided() string {
	return cmp.Or(l.whole, l.Prefix)
}
