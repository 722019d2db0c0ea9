// Package partition divides one registry over many slots of a Redis Cluster, so that it can outgrow
// one server.
//
//	reg, err := partition.NewRegistry(registry.Config{
//		Client: rdb, Control: ctl, Layout: registry.Layout{Prefix: "{rollcall}:"},
//	}, 16)
//	jan, err := partition.NewJanitor(janitor.Config{Client: rdb, Control: ctl}, reg)
//	go reg.Run(ctx)
//	go jan.Run(ctx)
//
//	claim := reg.Register(id)
//	owner, err := reg.Lookup(ctx, id)
//
// # A partition
//
// A partition is a whole registry in one slot, under a hash tag of its own, so the guarantees of
// packages registry, janitor and guard hold for each. No decision spans partitions.
//
// guard.PartitionOf and guard.Layout.Partition document an id's partition and its keys. With one
// partition the keys are those of the layout itself.
//
// # The number of partitions
//
// It is a power of two, and Redis keeps it in the string guard.Layout.Partitions. A replica with
// another number ends with ErrPartitionsDiffer; its entries do no harm, since the number is part of
// each hash tag. To change the number: stop every replica, delete that string, and start them with
// the new number. The old keys may then be deleted. A single partition without a hash tag ignores
// the string.
//
// # Who leads what
//
// A replica beats in every partition, in one pipeline per server, and contends for every lease. For
// each partition the replicas with a Janitor rank by a hash of their instance id and the partition
// (rendezvous hashing). A replica yields a free lease by 50 ms for each that ranks before it, and
// from the fourth on by half a lease TTL more, at most by two thirds of it. So leaders spread, and
// a large fleet costs Redis little. After any death:
//
//	one replica                       led again within the lease TTL and one retry
//	any number, of any rank, at once  led again within 2 lease TTLs: TTL until the lease ends, 2/3
//	                                  TTL until the last replica takes it
//	all but one replica               no hold "gap": the last one ticks 5/6 of a GAP after the others
//
// Only contenders with a heartbeat are ranked. Each tick adds its replica to the set
// guard.Layout.Contenders. A Janitor removes its replica when it ends, a registry its own id when
// it starts (a former life may have contended), and the leader a dead owner at the end of its
// sweep. Each replica reads the set of one partition after another, about a thousand of its
// members, once a GAP, and less often with 20 contenders or more (with a hundred: every ten GAPs).
// A stale ranking only costs time, within the bounds above.
//
// A replica that leads more than its share takes a further lease 100 ms later for each. One that
// leads more than its share plus one gives up the leases for which others rank higher, after a
// heartbeat's TTL, when the dead no longer count.
//
// # What is guaranteed, and what is not
//
//   - A pause holds all partitions.
//   - If Redis loses the number of partitions, and a replica with another number starts before one
//     of the others has restored it (within a heartbeat TTL), that replica runs. The others log an
//     error, and readers with the old number do not find its sockets. Nothing is deleted wrongly:
//     the two share no keys.
//   - janitor.Config.RedisShare is divided by the number of partitions per master, assuming an even
//     spread.
//   - An answer about all partitions (Status) is not of one instant.
package partition
