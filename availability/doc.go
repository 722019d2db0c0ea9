// Package availability answers who can take work now: which workers (mitras) are online, active,
// heard of lately, and below their capacity. Postgres is the durable truth. Redis, or Valkey, has a
// mirror of it that is read thousands of times a minute, and takes the heartbeats.
//
//	m, err := availability.New(availability.Config{Source: source, Client: rdb, Control: ctl})
//	jan, err := janitor.New(janitor.Config{Client: rdb, Control: ctl, Registry: reg, Sweeps: m.Sweeps()})
//	go m.Run(ctx)                          // on every replica: seeds, reads the feed
//	go jan.Run(ctx)                        // one replica at a time sweeps
//	<-m.Ready()                            // or no longer than one likes: reads fall back
//	beat, err := m.Heartbeat(ctx, id)      // Redis alone
//	s, err := m.Accept(ctx, session, id)   // the source first, then Redis
//	found, err := m.FindAvailable(ctx, 10) // found.From says who answered
//
// # The rules
//
//  1. One state row a mitra in Postgres, kept by triggers under its row lock. Every change of it
//     takes a version. State rows are never deleted.
//  2. The version is the order. One script applies states to Redis, each only if its version is
//     newer. Writers commit in Postgres first, and apply right after, best effort: a failure is
//     counted.
//  3. A feed heals within a second what was missed: rows whose transaction was not seen yet. It
//     waits for nobody else. While it cannot be read, reads ask Postgres first. Whatever ends its
//     connection is another life of Postgres: all is repaired and compared, and a Redis that is
//     ahead, because commits were lost, is outbid, also by each writer that meets it.
//     Reconciliation compares both sides now and then, and counts drift by kind before it heals it.
//  4. Whole or not: `mitras:seeded` stands only after a complete seed whose token survived. Without
//     it every read falls back to Postgres.
//  5. A heartbeat is never invented. Judging waits until the engine's witness has listened for
//     stale_after, and until heartbeats were required for so long. Nobody is judged while
//     stale_after is not longer than the pause between two heartbeats.
//  6. Auto-offline is a sweep of package janitor: condemned in Redis under the guard, then flipped
//     in one transaction that is conditional on the version, then applied. Redis has the last word:
//     a heartbeat that it took after the judgement, because a mark was lost, takes that back.
//  7. Accepting a session is a conditional statement under the row lock: overbooking is impossible.
//     A session keeps its place while its customer pays for more time: Extend changes no state.
//
// # What is not guaranteed
//
//   - What a read says is old when it arrives. Only the source decides, in Accept and Reroute.
//   - While neither a writer nor the feed reaches Redis, readers see the states of before.
//   - A reroute is brought in one step. If another writer changes one of the two mitras at the same
//     moment, that mitra's newer state may arrive first. Until the reroute's own step readers see
//     the session with both, or with none: milliseconds, or a Tick if that step is lost.
//   - Heartbeats that Redis loses are lost. The witness sees the loss, and nobody is judged before
//     stale_after has passed; the source's heartbeats are HeartbeatInterval old.
//   - A mitra whose judgement is taken back was offline in Postgres for the length of that commit.
//   - An app has to go online again after BeatNotOnline, also when the mitra was not set offline in
//     the end: a mark stands until then.
//   - Clocks: each replica compares Redis' time with the source's, and corrects a difference of a
//     second or more. Its own clock dates nothing. A heartbeat from a clock that was ahead by up
//     to a day counts until that time is reached; one further ahead is ignored.
//   - A Redis that evicts keys loses parts of the mirror, and `mitras:seeded` may stand. So its
//     maxmemory-policy has to be noeviction. Reconciliation finds what is missing.
//   - A writer that was frozen while the source lost commits may bring a state that was lost. It
//     stands until a newer version comes, or a reconciliation.
//   - While the mirror is not whole a heartbeat of any id is kept, and makes a key: the caller
//     checks the id.
//   - After stale_after was made shorter, whoever has not pinged so lately is silent at once. After
//     require_ping was turned on it is so for reads; going offline waits.
//   - A counter or a heartbeat of an id that stands in no set and in no hash is not looked for.
//     Nobody reads it.
package availability
