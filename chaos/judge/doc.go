// Package judge decides whether a history of the server is one that the registry's guarantees
// allow.
//
//	h, err := history.Read(server.Dir())
//	...
//	v := judge.Judge(h, judge.Facts{HeartbeatTTL: ttl, Sockets: sockets, Deaths: deaths})
//	for _, violation := range append(v.Violations, v.Settled()...) {
//		t.Error(violation) // with the byte at which the history has it
//	}
//
// # Who is authoritative
//
// The server. What the code under test reports of itself is not evidence: a script whose reply was
// lost and which was sent again answers that it deleted nothing, while it deleted ten. The one
// thing that Redis cannot know is where the sockets of the devices are; the simulated devices say
// that ([Socket]).
//
// # How it is judged
//
//	append-only file ──────────history.Read──► History ─┐
//	sockets, outages, look-ups, settings ───► Facts ────┴──Judge──► Verdict: violations, batches,
//	                                                                terms, bounds, the last state
//
// [Judge] plays the history into a model of the keyspace, command by command. Before each command
// every check sees the state at that very instant, so that "the heartbeat was absent when the entry
// went" is a look-up and no inference. The checks:
//
//	C1  at each eviction the owner's heartbeat is absent and the entry names the owner judged
//	C2  no entry of a live socket is evicted while its owner has refreshed within the last TTL;
//	    evictions of devices whose owner has not, and was kept from it by an outage, are false deaths,
//	    counted apart, and so is how many of them were healed
//	C3  any other change of an entry is its owner's: written in one step with the writer's heartbeat,
//	    where the device has been by then; taken out by the one it names, with its index, after the
//	    socket closed or a new boot, and not in the name of the killed; in an outage of the owner it
//	    may land later by as much. Nobody leaves the roster before heartbeat and index
//	C4  terms and epochs never fall, in no life of the server; every eviction stands under the newest
//	    term, its leader's name, the lease's token and time, with the leader's own heartbeat there, and
//	    GRACE after any hold, by the slowest settings that the fleet has lately had; also after what
//	    nobody may have noticed: a gap, a server whose counters began anew, more than half of the
//	    owners silent within a TTL or before a new leader's term
//	C5  log records and total equal the evictions, entry by entry; the log goes only where Redis
//	    evicts keys
//	C6  for each [Death] that the facts tell: another leader, and no entry of the dead any more, within
//	    the bounds; who leaves releases the lease
//	C7  ([Verdict.Settled], when faults have stopped) registry = live sockets, index and roster agree
//	C8  for each device, the history's writes and what was seen from outside ([Lookup]) have one
//	    order (porcupine; a search that ends without an answer is a violation)
//	C9  no command to a device has two outcomes; what the sweep of commands takes out is held to C1, C4
//	    and C5 too
//
// An eviction is an HDEL in one MULTI with a batch's log record. Time is the server's: each
// eviction carries a tick of the witness, each beat the time at which it was written; what tells no
// time happened between its neighbours, and is a violation only if it is one at any instant between
// them. A model that does not know a command on a key of ours says so: a judge that skips what it
// does not understand would find everything in order. For the same reason each check is itself
// given bad histories that it, and no other, must reject.
//
// # What nobody is judged by
//
// An event with [history.FaultKey] is played and not judged: what it took away (log, witness,
// total, a heartbeat) is taken as it then is, and what happens next is judged again. An owner whose
// heartbeat was deleted so is exempt from C2 until it has beaten again. Without the mark the same
// commands are violations. A new life of the server ([history.LifeCommand]) is played the same way.
// The checks forget nothing by it: an epoch of an earlier life must not be drawn again.
//
// # Runs are kept
//
// [Save] puts facts and history of a run in a folder, and go run ./chaos/rejudge judges it again,
// all checks.
//
// # Limits
//
// A clock of the server that goes back is not judged.
package judge
