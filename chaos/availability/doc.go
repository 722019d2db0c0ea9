// Package availability breaks everything around real replicas of cmd/availability, a real
// Postgres and a real Redis, and judges them by the records that both stores keep themselves. It
// consists of tests:
//
//	service_test.go  the replicas as their clients see them; it records acknowledged signs of life
//	crowd_test.go    mitras that ping, fall silent and die, and workers that hammer, also by raw SQL
//	truth_test.go    each version that Postgres committed, and the checks of them
//	oracle_test.go   plays Redis' history, and judges each state that Redis ever showed
//	rest_test.go     what has to be equal when all is quiet
//	world_test.go    both stores, two replicas, and everything the rows share
//	rows_test.go     the rows: the fault, and what else must hold
//
// # The truth
//
// A trigger on the states writes each version into a table, in the same transaction, with the
// statement that made it.
//
// Whatever sets a store back to older data, removes keys, or is away for an instant is played by
// the search, in the folder search. Rows have what only real processes show: kills and stops in the
// middle of a step, and sixteen writers at once.
//
// Redis' append-only file has the order in which readers saw things, and a script's writes as one
// event. Its times are whole seconds; heartbeats in it are the server's clock in milliseconds.
//
// # What is judged
//
//   - Each state in Redis is one that Postgres had committed, at its version. No older version
//     follows a newer one until somebody empties or breaks the mirror. Counters are numbers and
//     not negative. The mirror is certified only when it is whole.
//   - Postgres takes each version once, in order, and never gives a mitra more sessions than its
//     limit. Each flip has one log row. No mitra is set offline for silence if it gave a sign of
//     life that was acknowledged less than stale_after before. One that came behind the judgement
//     takes it back.
//   - At rest both stores have the same states. Silent mitras are offline in both, pinging ones
//     online.
//   - The program's own statements never deadlock with each other.
//
// One script applies both states of a reroute. Another writer of one of the two mitras may read
// between commit and apply, and apply that mitra's state first. These cases are counted, and few.
package availability
