// Package chaos breaks real replicas on a real Redis, and judges what became of the registry by
// what Redis itself recorded. It consists of tests; README.md says how to run, to read and to add
// one.
//
//	history  what the server did, from its append-only file
//	judge    whether the guarantees allow that; it is itself given histories that it must reject
//	rejudge  a program that judges a kept run again
//
// The scenarios are rows of a table (TestMatrix), a small fleet in this process to which everything
// happens at once (TestEverythingAtOnce), and whole processes to which everything happens at random
// (TestEverythingAtRandom). TestMutants weakens the code in known ways, and demands that a check
// fails.
package chaos
