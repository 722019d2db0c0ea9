// Package search looks at random for events after which something living is deleted as an orphan,
// something dead stays, or something is counted twice. It runs whole workers (a janitor with the
// sweeps of package orphan) on a real server in virtual time, beside a made-up backend whose true
// state an oracle knows.
//
// The oracle keeps to the contract of package orphan. Whenever a candidate goes, it asks the looks
// at its signs that the workers have made: the last of them reach back over the whole grace, no two
// are further apart than the rule allows, the backend said in none of them that the candidate
// lives, and it was the same thing in all of them. When all is quiet again what is dead has gone,
// what lives is there, and the total equals what went. What is restored is what it was.
//
// # Virtual time on a real server
//
// Workers run in a bubble of testing/synctest. Before each command the server's keys are moved to
// the bubble's time: each expiry by as much as time went on since. TIME and PEXPIRETIME, also in
// scripts, are answered by that time.
package search
