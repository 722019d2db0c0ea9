// Package guard makes every delete safe. One script checks and deletes in a single atomic step on
// the Redis server, so a leader that was paused, cut off or replaced can delete nothing that a
// correct leader would not.
//
//	timing := guard.Timing{Interval: 30 * time.Second, TTL: 90 * time.Second}
//	g := guard.New(rdb, control, guard.Layout{}, timing, "me")
//	_, err := g.Tick(ctx)                          // every contender, more often than Timing.Gap
//	v, _, err := g.Open(ctx, guard.Lease{...})     // once a term
//	a, err := g.Do(ctx, guard.Batch{
//		ID: guard.BatchID{Epoch: 7, N: 1}, Token: token, Sweep: "registry", Owner: "dead-one",
//		Body: guard.EvictEntries, Keys: guard.EntryKeys(guard.Layout{}, "dead-one"), Items: imeis,
//	})
//
// Package janitor does all this.
//
// # What the script checks
//
// In this order, see guard.lua:
//
//  1. Did this batch run before? If the log has its record, its reply was lost: return the same
//     answer and do nothing.
//  2. Does the lease hold this term's token? Otherwise FENCED.
//  3. Has the witness listened for the grace period without a hold, and does the leader's own
//     heartbeat exist? Otherwise HELD.
//  4. Does the owner's silence prove its death? Its heartbeat is absent and its record is old,
//     otherwise ALIVE; and nothing speaks against it, otherwise WAIT. See package guard/doubt.
//  5. The body judges its items and records the deletes: XADD under the batch's id. Redis refuses
//     an id that is not above the newest, so the record of a newer term ends the older one: FENCED.
//  6. The body deletes what it recorded: DONE.
//
// The log is record, memory and fence in one. Open writes a term's first record, `<epoch>-0`. A log
// that cannot take it is renamed to Layout.LogAside; after that only the lease's token, which every
// batch compares, fences older terms.
//
// Before all that, a server whose record of the leader is older than the leader's newest heartbeat
// is a former primary. It answers nothing, see IsFormer.
//
// # The witness
//
// Silence proves death only if somebody listened all the time. Every contender ticks: a small
// script stores the server's time. Anything that makes silence worthless raises a hold (see
// witness.lua), and nothing is deleted for a grace period. All ticks share one record, so a hold
// binds every leader.
//
// # What is not guaranteed
//
//   - Checks that the server does not support are off; Witness.ChecksOff lists them.
//   - An owner that the server turns away without counting it (a failed TLS handshake), or whose
//     leader may not read the count, looks dead; see docs/reference/faults.md.
//   - A failover may lose the newest batches after they were answered. Entries that come back are
//     swept, recorded and counted again, also by processes that count answers.
//   - While a slot of a Redis Cluster moves, every Tick is refused: nothing is deleted. The witness
//     does not notice if keys that had moved are lost and the move is cancelled, all within GAP and
//     before their owners beat again.
//   - A body that deletes outside Redis is fenced only by its own use of the epoch.
package guard
