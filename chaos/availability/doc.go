// Package availability breaks everything around real replicas of cmd/availability, a real Postgres
// and a real Redis, and judges by what both stores wrote down themselves. It consists of tests:
//
//	service_test.go  the replicas as their clients see them; it notes acknowledged signs of life
//	crowd_test.go    mitras who ping, fall silent and die, and workers who hammer, also by raw SQL
//	truth_test.go    each version that Postgres committed, and what judges it
//	oracle_test.go   plays what Redis wrote, and judges each state that it ever showed
//	rest_test.go     what has to be equal when all is quiet
//	world_test.go    both stores, two replicas, and what is the same in each row
//	rows_test.go     the rows: what breaks, and what must hold besides
//
// # The truth
//
// A trigger on the states writes each version into a table, in the transaction that made it, with
// the statement that did. When Postgres is set back to an older copy of its data, what it lost is
// kept, and read from a server of its own: Redis may have shown it.
//
// Redis' append-only file is in the order in which readers saw things, and has a script's writes as
// one event. It has times of whole seconds; heartbeats in it are the server's clock in
// milliseconds.
//
// # What is judged
//
//   - Each state in Redis is one that Postgres had committed, at its version. A version is never
//     followed by an older one until somebody empties or breaks the mirror. Counters are numbers,
//     and not negative. The mirror is certified only when it is whole.
//   - Postgres takes each version once, in order, and gives no mitra more sessions than it may
//     have. Each flip has one log row. Nobody is set offline for silence who gave a sign of life
//     that was acknowledged less than stale_after before.
//   - At rest both stores have the same states, and no mark is left. Whoever is silent is offline
//     in both, whoever pings is online.
//   - No deadlock is among the program's own statements.
//
// The states of a reroute are brought by one script. Another writer of one of the two mitras may
// look between commit and apply, and bring that mitra's state first. These are counted, and few.
package availability
