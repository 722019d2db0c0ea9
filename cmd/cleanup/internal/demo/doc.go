// Package demo shows the clean-up worker beside a game backend that is made up, and leaks on
// purpose: rooms whose process died, users that left a queue, matches that are over, bots that
// crashed. The worker is the real program, with the built-in rules, whose times are made short.
// MongoDB is FerretDB. At the end exactly the orphans have to be gone.
package demo
