package guard

import (
	"strconv"
	"strings"
)

// Layout names every key that the registry and the janitor use, and is the only place that does.
// The zero Layout gives the names that other services already read. Prefix is put before each of
// them: it keeps two fleets (or two tests) on one Redis apart. Every replica, and every reader of
// the registry, must use the same one.
type Layout struct {
	Prefix string

	whole string // of a partition: the prefix of the layout that was divided
}

// OneSlot tells whether all keys are in one slot of a Redis Cluster: Prefix has a hash tag, such as
// "{rollcall}:".
func (l Layout) OneSlot() bool {
	_, tagged, open := strings.Cut(l.Prefix, "{")
	tag, _, closed := strings.Cut(tagged, "}")
	return open && closed && tag != ""
}

// Registry is the hash of entries: IMEI -> instance id of the owner.
func (l Layout) Registry() string { return l.Prefix + "connections:registry" }

// Heartbeat is the key whose existence proves that an instance lives.
func (l Layout) Heartbeat(instance string) string { return l.Prefix + "instance:heartbeat:" + instance }

// News is the channel on which instances say that they come or that they said goodbye: by their id.
func (l Layout) News() string { return l.Heartbeat("") }

// Devices is the reverse index of an instance: the set of IMEIs that it registered.
func (l Layout) Devices(instance string) string { return l.Prefix + "instance:devices:" + instance }

// Scanned says what the last full scan met of an instance: how many entries, and a digest of them.
// It expires.
func (l Layout) Scanned(instance string) string { return l.Prefix + "instance:scanned:" + instance }

// Roster is the set of instances that have registered and are not yet swept.
func (l Layout) Roster() string { return l.Prefix + "instances:roster" }

// Lease is the key whose holder leads.
func (l Layout) Lease() string { return l.Prefix + "janitor:leader" }

// Contenders is the set of instances that tick the witness and contend for the lease. Each tick
// adds its own.
func (l Layout) Contenders() string { return l.Prefix + "janitor:contenders" }

// Witness is the hash that records how long Redis has been listened to without a gap.
func (l Layout) Witness() string { return l.Prefix + "janitor:witness" }

// Paused is the string that holds every leader, of each partition, while it exists.
func (l Layout) Paused() string { return l.undivided() + "janitor:paused" }

// Log is the eviction log, the stream of guarded batches, one record each.
func (l Layout) Log() string { return l.Prefix + "janitor:log" }

// LogAside is what the leader of a term calls an eviction log that took no more records. Each term
// has a name of its own, so that nothing set aside before is overwritten. It is for people.
func (l Layout) LogAside(epoch uint64) string {
	return l.Log() + ":aside:" + strconv.FormatUint(epoch, 10)
}

// WitnessAside is what a tick calls a key of another type that it finds in the witness' place. It is
// for people.
func (l Layout) WitnessAside(number uint64) string {
	return l.Witness() + ":aside:" + strconv.FormatUint(number, 10)
}

// About is what a replica says of itself, for people: version, address, settings. It expires.
func (l Layout) About(instance string) string { return l.undivided() + "instance:about:" + instance }

// Timeline is the stream of what happened that the eviction log does not have, for people.
func (l Layout) Timeline() string { return l.undivided() + "janitor:timeline" }

// Never is a key that nobody writes. What names it is refused while the slot of all keys moves from
// one server of a Redis Cluster to another.
func (l Layout) Never() string { return l.Prefix + "janitor:never" }

// Bye is the Witness' field that says that an instance left in good order, though with entries left
// behind.
func (Layout) Bye(instance string) string { return "bye:" + instance }
