package guard

import (
	"strconv"
	"strings"
)

// Layout names every key of the registry and the janitor. The zero Layout gives the names that
// other services already read. Prefix keeps two fleets on one Redis apart; all replicas and readers
// of a registry must use the same one.
type Layout struct {
	Prefix string

	whole string // of a partition: the prefix of the undivided layout
}

// PrefixRule says which prefixes are valid: others could not be put into an ACL, or be passed to the
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
