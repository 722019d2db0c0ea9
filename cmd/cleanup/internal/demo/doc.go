// Package demo shows the clean-up worker beside a made-up game backend that leaks on purpose: rooms
// whose process died, users who left a queue, finished matches, crashed bots. The worker is the
// real program, with the built-in rules and short times; MongoDB is FerretDB. At the end, exactly
// the orphans must be gone.
package demo
