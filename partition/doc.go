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
// languages. With one partition the keys are those of the layout itself, and everything costs what
// it costs without this package.
//
// # The number of partitions
//
// It is a power of two and the same in the whole fleet. Redis keeps it, in the string
// guard.Layout.Partitions. A replica that has another number ends with ErrPartitionsDiffer. What it
// wrote until then stands under other keys, since the number is part of each hash tag: it is not
// found, and it does no harm. To change the number: stop every replica, delete that string, start
// them with the new number. The keys of the old number may then be deleted.
//
// # Who leads what
//
// A replica beats in every partition. Each partition has a leader of its own. Three replicas
// contend for it and listen, not all: those that rank first by a hash of their instance id and the
// partition (rendezvous hashing). The ranking is of those that live: each replica reads a roster
// with its heartbeats once in a while, of one partition after the other. If nobody of the three is
// left, the next reading of the others ranks anew; until then the partition is not swept.
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
