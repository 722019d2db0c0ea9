// Package guard makes every delete safe. One script asks and deletes in one atomic step on the
// Redis server, so that a leader which was paused, cut off or replaced can delete nothing that a
// correct one would not.
//
//	timing := guard.Timing{Interval: 30 * time.Second, TTL: 90 * time.Second}
//	g := guard.New(rdb, control, guard.Layout{}, timing, "me")
//	_, err := g.Tick(ctx)                          // by each that contends, more often than Timing.Gap
//	v, _, err := g.Open(ctx, guard.Lease{...})     // once a term
//	a, err := g.Do(ctx, guard.Batch{
//		ID: guard.BatchID{Epoch: 7, N: 1}, Token: token, Sweep: "registry", Owner: "dead-one",
//		Body: registry.EvictEntries, Keys: registry.EntryKeys(guard.Layout{}, "dead-one"), Items: imeis,
//	})
//
// Package janitor does all that. Use guard alone only to write a Body, or to read the witness.
//
// # What one script asks
//
// In this order, see guard.lua:
//
//  1. Was this batch done before? The log has a record of its id then: the same answer again, and
//     nothing is done. So a batch whose reply was lost is asked for again without harm.
//  2. Does the lease hold this term's token? Else FENCED.
//  3. Has the witness listened for the grace period without a hold, and is the leader's own
//     heartbeat there? Else HELD, with the reason of the hold.
//  4. Is the owner's heartbeat absent? Else ALIVE.
//  5. The body judges its items, and records what goes: XADD under the batch's id. Redis refuses an
//     id that is not above the newest, so a newer term's record ends the older term: FENCED.
//  6. The body deletes what it recorded: DONE.
//
// The log is record, memory and fence in one. Open writes the first record of a term, `<epoch>-0`.
// A log that cannot take it, whatever somebody wrote there, is renamed to Layout.LogAside. From
// then on the lease's token alone keeps older terms from deleting, which every batch compares.
//
// # The witness
//
// Silence proves death only if somebody listened all the time. Every replica that contends ticks: a
// small script stores the server's time. Whatever makes silence worthless is a hold, with its
// reason: nothing is deleted before the grace period has passed since. The reasons stand in the
// head of witness.lua. Ticks of all of them, leading or not, go into one record, so a hold binds
// every leader.
//
// # What is not guaranteed
//
//   - A witness that somebody deletes, or that a failover takes back to before they were told,
//     forgets the larger settings of a fleet with two settings, until an owner with the larger ones
//     beats again.
//   - What the server does not say (INFO refused, no evicted_keys) is not checked, and
//     Witness.ChecksOff names it.
//   - An owner that the server turns away without counting that is like a dead one: a denied
//     command, a failed TLS handshake. docs/faults.md lists them.
//   - A failover may lose the newest batches, whose answers were given. What they deleted may be
//     there again: it is swept, recorded and counted again. The log and its total agree all the
//     same, but a counter that a process keeps of answers has counted what was lost.
//   - While a slot of a Redis Cluster moves, Redis refuses what names keys of both sides, and so
//     every Tick: nothing is deleted. If keys that had moved are lost on the other side and the
//     move is called off, all within GAP and before their owners beat again, the witness does not
//     know of it.
//   - A body that deletes outside Redis is fenced only by what it makes of the epoch.
package guard
