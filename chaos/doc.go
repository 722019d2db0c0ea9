// Package chaos breaks real replicas on a real Redis and judges what became of the registry by what Redis itself recorded.
//
// # Who is authoritative
//
// The server. Its append-only file is one total order of everything that was written, the effects of scripts as
// MULTI … EXEC, each expiry as an explicit DEL: [ReadAppendOnly] makes it a [History]. What the code under test reports of
// itself is not evidence. A script whose reply was lost and which was sent again answers that it deleted nothing, while it
// deleted ten. The one thing that Redis cannot know is where the sockets of the devices are; the simulated devices say that
// ([Socket]).
//
// # How it is judged
//
//	append-only file ──ReadAppendOnly──► History ──┐
//	devices' sockets, settings ────────► Facts ────┴──Judge──► Verdict: violations, batches, terms, the last state
//
// [Judge] plays the history into a model of the keyspace, command by command. Before each command every check sees the state
// at that very instant, so that "the heartbeat was absent when the entry went" is a look-up and no inference. The checks:
//
//	C1  at each eviction the owner's heartbeat is absent and the entry names the owner judged
//	C2  no entry of a live socket is evicted while its owner has refreshed within the last TTL; evictions of devices whose
//	    owner has not are false deaths, counted apart
//	C3  any other change of an entry is its owner's: written in one step with the writer's heartbeat, taken out by the one it
//	    names, after the socket closed or a new boot
//	C4  terms and epochs never fall; every eviction stands under the newest term and the lease's token, and WARM after any doubt,
//	    gaps that nobody noticed included
//	C5  audit records and total equal the evictions, entry by entry
//	C7  ([Verdict.Converged], when faults have stopped) registry = live sockets, index and roster agree
//
// An eviction is an HDEL in one MULTI with a batch's audit record. Time is the server's: each eviction carries a tick
// of the witness, each beat the time at which it was written; what tells no time happened between its neighbours, and is a violation
// only if it is one at any instant between them. A model that does not know a command says so: a judge that
// skips what it does not understand would find everything in order. For the same reason each check is itself given bad
// histories that it must reject.
//
// # What is not here yet
//
// C6 (how soon) is asserted by each scenario with the times of the verdict. C8 (linearizability), a network between real processes, named
// failpoints and mutants are not part of this ground. Histories of more than one life of the server are read if no rewrite
// of the file took place, and a clock of the server that goes back is not judged.
//
// # Scenarios
//
// They are the tests of this package, rows of a table; README.md says how to read and to add one.
package chaos
