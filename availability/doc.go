// Package availability answers who can take work now: which workers (mitras) are online, active,
// heard of lately, and below their capacity. Postgres is the durable truth. Redis, or Valkey, has a
// mirror of it that is read thousands of times a minute, and takes the heartbeats.
//
// It is being built: this page is its contract.
//
// # The rules
//
//  1. One state row a mitra in Postgres, kept by triggers under its row lock. Every change of it takes
//     a version. State rows are never deleted.
//  2. The version is the order. One script applies states to Redis, each only if its version is newer.
//     Writers commit in Postgres first, and apply right after, best effort: a failure is counted.
//  3. A feed heals within a second what was missed: rows whose transaction may not have been seen.
//     Reconciliation compares both sides now and then, and counts drift by kind before it heals it. A
//     Redis that is ahead of Postgres, which lost commits, is outbid.
//  4. Whole or not: `mitras:seeded` stands only after a complete seed whose token survived. Without it
//     every read falls back to Postgres.
//  5. A heartbeat is never invented. Judging waits until the engine's witness has listened for
//     stale_after.
//  6. Auto-offline is a sweep of package janitor: condemned in Redis under the guard, then flipped in one
//     transaction that is conditional on the version, then applied.
//  7. Accepting a session is a conditional statement under the row lock: overbooking is impossible.
package availability
