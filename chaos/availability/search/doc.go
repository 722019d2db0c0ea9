// Package search plays random events, looking for one after which the mirror of availability
// hides PostgreSQL's data, a living mitra goes offline, or a mitra gets more sessions than
// allowed. It runs two whole replicas (package availability with its janitor) on a real
// PostgreSQL and a real Redis, plays random steps, and asks an oracle:
//
//   - Every commit shows in the answers of every replica within a second, except in answers
//     marked as possibly old. So does a sign of life, on either path.
//   - No mitra goes offline for silence if its sign of life was acknowledged within stale_after.
//     A sign acknowledged during that commit brings the mitra back.
//   - While Redis is down, a mitra that has been silent for too long is not reported as
//     reachable.
//   - No accept and no reroute of the program gives a mitra more sessions than the limit.
//   - At rest, Redis has exactly PostgreSQL's data, the states agree with their tables, and
//     silent mitras go offline.
//
// The truth is in the service's own tables, which the oracle reads itself. Its own triggers
// record each mitra set offline for silence and each session over the limit. The search itself
// records the acknowledged signs of life.
//
// # Time
//
// The search does not wait for silence: it advances time by moving every stored time into the
// past, in both stores and in the oracle's record. Redis' and PostgreSQL's clocks may each differ
// from the replicas': scripts read the time through a few lines of Lua put in front of them, SQL
// through a function clock_timestamp() that hides PostgreSQL's own. Only the age of the fallback
// for reads is tested by waiting, about two seconds, because that time is in a replica's memory.
// Bounds count only the time in which the servers answer at once, so that a busy machine is no
// finding.
//
// # Limits
//
// A comparison heals rows that no trigger sees, and entries of the mirror that are deleted by
// hand. Until it has run, the mitras that they touch are not checked. Steps are sequential; only
// hanging transactions run beside them, and events during a slow commit of an auto-offline. The
// rows of chaos/availability have the concurrency of sixteen writers.
package search
