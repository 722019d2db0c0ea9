// Package search looks at random for events after which something living is deleted as an orphan,
// something dead stays, or something is counted twice. It runs whole workers (a janitor with the
// sweeps of package orphan) on real servers in virtual time, beside a made-up backend whose true
// state an oracle knows.
//
// The oracle checks the contract of package orphan. When a candidate is deleted, it examines the
// looks that the workers made at its signs: they cover the whole grace, no two are further apart
// than the rule allows, none of them found a sign of life, and the candidate was the same thing in
// all of them. Once the faults have stopped, every dead key is deleted within a bound (see within),
// every living key exists, and the total equals the number of deletes. A restored key equals the
// deleted one. A rule most of whose candidates fall silent at once is held before any of them is
// deleted.
//
// Rules are drawn from the grammar: signs (also of lists, and of an owner that a value names),
// evidence in documents and in values, or that a field or an expiry is missing, ages, references,
// values that are not what a rule reads, large values, members of two parts, names that look nearly
// like those of candidates, and words that a variable is not. Fields expire where the server offers
// that.
//
// Episodes are played on a Redis, on the newest one, and on Clusters of one and of three masters.
// On a Cluster each delete may take 20 ms, so that what goes together takes longer than a look
// counts. Servers are restarted everywhere. On the Cluster of three masters slots move, at once or
// one key ahead of the others, masters die, and replicas are promoted, also those that lack the
// last writes of their master. The truth is then what the replica has.
//
// A trap springs between two commands of a pass, often just before a script that deletes, notes an
// intent, moves away or settles. Then the backend writes, a reference or the source goes, the
// witness holds, the leader dies, a slot moves, or a master fails over.
//
// No other command takes time. So what takes too long on one server is not found here: looks that
// get too old within a pass, scripts that hold the server. Neither are channels.
//
// # Virtual time on real servers
//
// Workers run in a bubble of testing/synctest. Before each command the keys of the server that
// answers it are moved to the bubble's time: each expiry by as much as time went on since. TIME and
// PEXPIRETIME, also in scripts, are answered by that time.
package search
