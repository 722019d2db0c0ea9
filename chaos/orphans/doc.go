// Package orphans breaks everything around real workers (cmd/cleanup) that delete the orphans of
// a made-up game backend, and checks with the server's own history that nothing living was
// deleted. It consists of tests:
//
//	backend_test.go  a backend that lives, and leaks on purpose; it writes the truth into the history
//	acts_test.go     its constant random activity
//	oracle_test.go   plays the history, and judges each thing that disappears
//	world_test.go    Redis, MongoDB, two workers, and everything the rows share
//	rows_test.go     the rows: the fault, and what must hold besides the oracle
//
// # The truth
//
// Each write of the backend is one transaction with a SET of stepKey, which names everything that
// starts or ceases to live with it. A room, a match, a bot or a queued user is recorded before
// any of it exists, and its end before any of it is removed. So the order of the server's
// append-only file shows what lives at the instant of every delete, independent of all clocks.
//
// Things that are dead and have to be deleted are made so, with an age of an hour already. The
// living are either too young for the whole test, or show one of the signs of life. The rules are
// the shipped ones, with a grace of one second instead of a minute.
package orphans
