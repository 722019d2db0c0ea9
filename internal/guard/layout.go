package guard

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/slot"
)

// Layout names every key of the registry and the janitor. The zero Layout gives the names that
// other services already read. Prefix keeps two fleets on one Redis apart; all replicas and readers
// of a registry must use the same one.
type Layout struct {
	Prefix string

	whole string // of a partition: the prefix of the undivided layout
}

// PrefixRule describes valid prefixes. Others could not be put into an ACL, or be passed to the
// programs.
const PrefixRule = "at most 100 printable ASCII characters without spaces and *?[]\\, with at most one {tag}"

// ValidPrefix reports whether Prefix keeps to PrefixRule.
func (l Layout) ValidPrefix() bool {
	bad := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`*?[]\`, r) }
	prefix := l.undivided()
	open, closed := strings.Count(prefix, "{"), strings.Count(prefix, "}")
	return len(prefix) <= 100 && !strings.ContainsFunc(prefix, bad) && open <= 1 && open == closed
}

// OneSlot reports whether all keys share a slot of a Redis Cluster: Prefix has a hash tag.
func (l Layout) OneSlot() bool {
	_, tagged, open := strings.Cut(l.Prefix, "{")
	tag, _, closed := strings.Cut(tagged, "}")
	return open && closed && tag != ""
}

// Registry is the hash of entries: id -> instance id.
func (l Layout) Registry() string { return l.Prefix + "connections:registry" }

// Heartbeat is the key whose existence proves that an instance lives.
func (l Layout) Heartbeat(instance string) string { return l.Prefix + "instance:heartbeat:" + instance }

// News is the channel on which instances publish their id when they start or leave in good order.
func (l Layout) News() string { return l.Heartbeat("") }

// Devices is the reverse index of an instance: the set of ids registered through it.
func (l Layout) Devices(instance string) string { return l.Prefix + "instance:devices:" + instance }

// Beats is the hash of records: instance -> its last proof of life and its state; see
// package doubt. It never expires.
func (l Layout) Beats() string { return l.Prefix + "janitor:beats" }

// BeatsAside is the name given to a key of another type in the place of Beats, for people.
func (l Layout) BeatsAside(number uint64) string {
	return l.Beats() + ":aside:" + strconv.FormatUint(number, 10)
}

// Roster is the set of instances that have registered and are not yet swept.
func (l Layout) Roster() string { return l.Prefix + "instances:roster" }

// Lease is the key that the leader holds.
func (l Layout) Lease() string { return l.Prefix + "janitor:leader" }

// Term begins the names of the lease's other keys and of its channel: it has a hash tag.
func (l Layout) Term() string {
	if l.OneSlot() {
		return l.Lease()
	}
	return "{" + l.Lease() + "}"
}

// Contenders is the set of instances that contend for the lease. Each tick adds its instance.
func (l Layout) Contenders() string { return l.Prefix + "janitor:contenders" }

// Witness is the hash that records how long Redis has been listened to without a gap.
func (l Layout) Witness() string { return l.Prefix + "janitor:witness" }

// Paused is a string that holds the leaders of all partitions while it exists.
func (l Layout) Paused() string { return l.undivided() + "janitor:paused" }

// Log is the eviction log: a stream with one record per guarded batch.
func (l Layout) Log() string { return l.Prefix + "janitor:log" }

// LogAside is the name given to an eviction log that took no more records, for people. Each term
// has its own, so that nothing set aside before is overwritten.
func (l Layout) LogAside(epoch uint64) string {
	return l.Log() + ":aside:" + strconv.FormatUint(epoch, 10)
}

// WitnessAside is the name given to a key of another type in the witness' place, for people.
func (l Layout) WitnessAside(number uint64) string {
	return l.Witness() + ":aside:" + strconv.FormatUint(number, 10)
}

// About describes a replica to people: version, address, settings. It expires.
func (l Layout) About(instance string) string { return l.undivided() + "instance:about:" + instance }

// Timeline is the stream of events that the eviction log does not have, for people.
func (l Layout) Timeline() string { return l.undivided() + "janitor:timeline" }

// Minutes is the stream of what the fleet had and did, minute by minute, for people.
func (l Layout) Minutes() string { return l.undivided() + "janitor:minutes" }

// Never is a key that nobody writes; see Guard.Tick.
func (l Layout) Never() string { return l.Prefix + "janitor:never" }

// Timing holds the settings that a fleet must agree on. GAP and GRACE follow from them.
type Timing struct {
	Interval time.Duration // between two heartbeats of an instance
	TTL      time.Duration // of a heartbeat; at least three intervals
}

// Gap is the longest time between two ticks after which silence still counts as evidence.
func (t Timing) Gap() time.Duration { return (t.TTL - t.Interval) / 2 }

// Grace is how long Redis must have been observed without a hold before anything is deleted.
func (t Timing) Grace() time.Duration { return t.TTL + 2*time.Second }

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
