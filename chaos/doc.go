// Package chaos breaks real replicas on a real Redis, and judges the registry by Redis' own
// record. It consists of tests; README.md explains how to run them.
//
//	history  the server's actions, from its append-only file
//	judge    whether the guarantees allow them; it is itself given histories that it must reject
//	rejudge  a program that judges a kept run again
//
// The scenarios are rows of a table (TestMatrix), and whole processes with random faults
// (TestEverythingAtRandom). TestMutants weakens the code in known ways, and demands that a check
// fails.
//
// # How a row reads
//
//	{3, "LeaderStoppedBriefly", true, 60, slowSweep, under(&leaderStopped{}, sameTerm)},
//
// under (fault_test.go) starts three replicas and 60 devices, waits until deletes may begin, and
// starts traffic: every second device moves, reconnects, reports, or leaves its old socket to be
// noticed late. The fault, an object with setup, fail, recover and hits, fails and recovers; every
// device reports once more, everything comes to rest, and all checks run on the whole history. A
// run counts only with enough traffic and a fault that was hit, by a counter of the proxy, the
// server, the kernel or a failpoint, never by a replica's own report.
//
//   - Failpoints (build tag failpoints) are places at which a process stops or kills itself.
//   - An observer keeps looking up devices: its answers, and every confirmed handshake, must fit
//     the history's order (C8).
//   - Everything at random draws faults by weight. On Clusters one after the other is brought up,
//     with 96,000 devices and 1, 4 or 16 partitions, and gets every fault once.
//   - Mutants: the program is built without one protection at a time (mutant_table_test.go in each
//     folder), the row that should notice is run, and a check must fail; a crash or a time-out does
//     not count. A protection that compensates is removed too, and a control run with only that one
//     missing must pass.
//
// # How to judge, and to add a check
//
// go doc ./chaos/judge lists the checks, as ./chaos/orphans, ./chaos/cluster and
// ./chaos/availability do. A new one comes with histories written by hand (judge/builder_test.go):
// good ones that it accepts, and bad ones that it alone rejects. A violation has a byte offset in
// the kept history. Look for the script that wrote the event, the model's state just before, and
// the processes' log lines of that second.
package chaos
