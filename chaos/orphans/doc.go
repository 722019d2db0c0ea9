// Package orphans breaks everything around real workers (cmd/cleanup) that delete the orphans of a
// made-up game backend, and judges by the server's own history that nothing living went. It
// consists of tests:
//
//	backend_test.go  a backend that lives, and leaks on purpose; it writes the truth into the history
//	acts_test.go     what it does all the time, at random
//	oracle_test.go   plays the history, and judges each thing that disappears
//	world_test.go    Redis, MongoDB, two workers, and what is the same in each row
//	rows_test.go     the rows: what breaks, and what must hold besides the oracle
//
// # The truth
//
// Each write of the backend is one transaction with a SET of stepKey: it says what begins to live
// by it, and what lives no longer. A room, a match, a bot or a user in the queue that is about to
// exist is noted before anything of it is there; one that is about to go is noted before anything
// of it is taken away. So the order of the server's append-only file tells, at the instant of every
// delete, what lives, and no clock has a say in it.
//
// What is dead and has to go has been made so: its age is an hour already. What lives is either too
// young for the whole test, or shows one of the signs of life. The rules are the ones that are
// shipped, with a grace of one second in place of a minute.
package orphans
