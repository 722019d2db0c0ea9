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
// A replica beats in every partition, in one pipeline a server, and each partition has a leader of
// its own. Every replica that runs a Janitor contends for every lease. For each partition
// contenders rank by a hash of their instance id and the partition (rendezvous hashing). The first
// 32, divided by the number of partitions but at least three, contend and tick as package janitor
// does by itself. The others are reserves, which cost less:
//
//   - Every GAP/2 a reserve reads the witnesses of all partitions in one pipeline a server, and
//     ticks those that nobody ticked for GAP/3.
//   - Once a lease TTL it looks at all leases in one pipeline, and again within a third of a TTL
//     after one can have expired. It takes a lease that it has seen free for TTL/3 to TTL/2. A
//     release wakes it too.
//
// So, whatever dies:
//
//	one replica                       led again within the lease TTL and one retry
//	any number, of any rank, at once  led again within 2 lease TTLs: TTL until the lease ends, TTL/3
//	                                  until a reserve looks, TTL/2 until it takes the lease
//	all but one replica               no hold "gap": the last one ticks 5/6 of a GAP after the others
//
// The ranking is of contenders that beat in time. Each tick adds its replica to the set
// guard.Layout.Contenders. A Janitor removes its replica when it ends, a registry removes its own
// id when it starts, since a former life may have contended, and the leader removes a dead owner at
// the end of its sweep. Each replica reads the set of one partition after the other, with the
// heartbeats of its members, once a GAP, more seldom from 20 contenders on (a hundred: every ten
// GAPs). Replicas that embed the registry alone are neither ranked nor counted. A stale ranking
// costs time within the bounds above, nothing else.
//
// A replica that leads more than its share takes a further lease up to 250 ms later than others.
// One that leads more than its share and one more gives up those that others rank higher for, if
// that lasts for one and a half heartbeat intervals: by then those that died do not count any more.
// So the leaders spread, and the work of sweeping with them.
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
