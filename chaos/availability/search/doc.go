// Package search looks at random for events after which the mirror of availability hides what
// PostgreSQL has, somebody who is alive goes offline, or a mitra gets more sessions than
// allowed. It runs two whole replicas (package availability with its janitor) on a real
// PostgreSQL and a real Redis, plays random steps, and asks an oracle:
//
//   - Every commit shows in the answers of every replica within a second, except in answers marked
//     as possibly old. A sign of life counts as much, on either path.
//   - Nobody goes offline for silence whose sign of life was acknowledged within stale_after.
//     One that was acknowledged while that was being committed brings the mitra back.
//   - While Redis is away, a mitra that has been silent for too long is not reported as reachable.
//   - No accept and no reroute of the program gives a mitra more sessions than the limit.
//   - At rest, Redis has exactly what PostgreSQL has, the states agree with their tables, and
//     silent mitras go offline.
//
// The truth is in the service's own tables, which the oracle reads itself. Triggers of its own
// write down who was set offline for silence, and which session was one too many. The
// acknowledged signs of life are the search's own record.
//
// # Time
//
// Nobody sleeps until somebody is silent: time advances by moving every stored time into the
// past, in both stores and in the oracle's record. Redis and PostgreSQL may each have a clock
// that differs from the replicas': scripts read the time through a few lines of Lua put before
// them, SQL through a function clock_timestamp() that hides PostgreSQL's own. That the fallback
// of reads ages is found by waiting, for about two seconds, since that time is in the memory of
// a replica.
//
// # Kept out
//
// Rows that no trigger sees, and entries of the mirror that are deleted by hand, are healed by a
// comparison: until it ran, nothing is asked about the mitras that they touch. Steps follow one
// another: nothing runs beside them but transactions that hang, and what happens while the commit
// of an auto-offline takes its time. The rows of
// chaos/availability have the concurrency of sixteen writers.
package search
