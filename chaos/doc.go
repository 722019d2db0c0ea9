// Package chaos breaks real replicas on a real Redis, and judges the registry by Redis' own
// record. It consists of tests; README.md explains how to run, read and add one.
//
//	history  the server's actions, from its append-only file
//	judge    whether the guarantees allow them; it is itself given histories that it must reject
//	rejudge  a program that judges a kept run again
//
// The scenarios are rows of a table (TestMatrix), and whole processes with random faults
// (TestEverythingAtRandom). TestMutants weakens the code in known ways, and demands that a check
// fails.
package chaos
