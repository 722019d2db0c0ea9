// Package partition divides one registry over many slots of a Redis Cluster, so that it may be
// larger than one server bears. To its users it is one registry.
//
//	reg, err := partition.NewRegistry(registry.Config{
//		Client: rdb, Control: ctl, Layout: registry.Layout{Prefix: "{rollcall}:"},
//	}, 16)
//	jan, err := partition.NewJanitor(janitor.Config{Client: rdb, Control: ctl}, reg)
//	go reg.Run(ctx)
//	go jan.Run(ctx)
//
//	claim := reg.Register(imei)
//	owner, err := reg.Lookup(ctx, imei)
//
// # A partition
//
// A partition is a whole registry under a hash tag of its own: entries, heartbeats, reverse
// indexes, roster, lease, witness and eviction log. So all of it is in one slot, and what packages
// registry, janitor and guard promise of one Redis they promise of each partition. Nothing is
// decided across partitions.
//
// A device's partition is the CRC16 of its IMEI, by which Redis Cluster finds slots, modulo the
// number of partitions: see guard.PartitionOf and guard.Layout.Partition, for readers in other
// languages. With one partition the keys are those of the layout itself, and everything is as
// without this package, but for who contends.
//
// # The number of partitions
//
// It is a power of two and the same in the whole fleet. Redis keeps it, in the string
// guard.Layout.Partitions. A replica that has another number ends with ErrPartitionsDiffer. What it
// wrote until then stands under other keys, since the number is part of each hash tag: it is not
// found, and it does no harm. To change the number: stop every replica, delete that string, start
// them with the new number. The keys of the old number may then be deleted. One partition whose
// Layout.Prefix has no hash tag is none of such a fleet: it neither reads nor writes the string.
//
// # Who leads what
//
// A replica beats in every partition, in one pipeline a server. Each partition has a leader of its
// own. Three replicas contend for it and listen, not all, also where there is one partition: those
// that rank first by a hash of their instance id and the partition (rendezvous hashing). The
// ranking is of those that live: each replica reads a roster with its heartbeats once a GAP, more
// seldom from 20 replicas on (a hundred: every ten GAPs), of one partition after the other.
//
// The others contend by lot, each in one of so many tries as replicas live, or of four times as
// many where there are several partitions. So when all three die together, the lease that they
// leave is found free by one of the others: on average a fifth of a lease TTL after its end (3 s by
// default), with several partitions four fifths (12 s); it takes five times as long once in 150
// times. Where most of the fleet ends at once with them, the lots still count it: few are left to
// draw, and it takes as many times longer, but no longer than a heartbeat TTL and the time between
// two readings. All are sure to contend again as the next reading of a roster finds the heartbeats
// of the three ended. Meanwhile hardly anybody ticks: the witness may find a gap, and then nothing
// is deleted for GRACE. So a fleet that loses its three contenders at once sweeps that much later,
// and deletes nothing wrong.
//
// A replica that leads already waits longer before it takes a further lease, and one that leads
// more than its share and one more gives up those that others rank higher for. So the leaders
// spread, and the work of sweeping with them.
//
// # What is guaranteed, and what is not
//
//   - What registry, janitor and guard guarantee, for each partition.
//   - A pause holds all partitions.
//   - If Redis loses the number of partitions, and a replica with another number starts before one
//     of the others has put it back (within a heartbeat TTL), that replica runs: the others log an
//     error, and its devices are not found by those who read by the old number. Nothing is deleted
//     wrongly: the two share no keys.
//   - Redis' time for sweeps: janitor.Config.RedisShare is divided by the number of partitions that
//     a master has, if they lie evenly.
//   - An answer about all partitions (Status) is not of one instant.
package partition
