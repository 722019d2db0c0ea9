// Package judge decides whether the registry's guarantees allow a history of the server.
//
//	h, err := history.Read(server.Dir())
//	...
//	v := judge.Judge(h, judge.Facts{HeartbeatTTL: ttl, Sockets: sockets, Deaths: deaths})
//	for _, violation := range append(v.Violations, v.Settled()...) {
//		t.Error(violation) // with its byte offset in the history
//	}
//
// # The authority
//
// The server is the authority, and the simulated devices for their sockets ([Socket]). Reports of
// the code under test are not evidence: a script that was sent again because its reply was lost
// answers that it deleted nothing, though it deleted ten.
//
// # How it is judged
//
//	append-only file ──────────history.Read──► History ─┐
//	sockets, outages, look-ups, settings ───► Facts ────┴──Judge──► Verdict: violations, batches,
//	                                                                terms, bounds, the last state
//
// [Judge] plays the history into a model of the keyspace. Before each command every check sees the
// state at that instant: an absent heartbeat is a look-up, not an inference. The checks:
//
//	C1  at each eviction the owner's heartbeat is absent and the entry names the owner judged
//	C2  no entry of a live socket is evicted while its owner has refreshed within the last TTL;
//	    if an outage kept the owner from refreshing, the eviction is a false death; these are
//	    counted apart, and so are those that healed
//	C3  any other change of an entry is its owner's. It is written in one step with the writer's
//	    heartbeat, to a place where the device has been by then. It is removed by the owner it
//	    names, with its index, after the socket closed or a new boot, and not in the name of a
//	    killed instance; an outage of the owner may delay that by its own length. Nobody leaves
//	    the roster before heartbeat and index
//	C4  terms and epochs never fall, in no life of the server. Every eviction carries the newest
//	    term, its leader's name, the lease's token and time; the leader's own heartbeat exists;
//	    GRACE has passed since any hold, by the slowest recent settings of the fleet. That includes
//	    holds that nobody may have noticed: a gap, a server whose counters restarted, more than
//	    half of the owners silent within a TTL or before a new leader's term
//	C5  log records and total equal the evictions, entry by entry; the log disappears only if Redis
//	    evicts keys
//	C6  after each [Death] in the facts another leader takes over and the entries of the dead
//	    disappear, within the bounds; a replica that leaves releases the lease
//	C7  ([Verdict.Settled], when faults have stopped) registry = live sockets, index and roster agree
//	C8  for each device, the history's writes and the observations from outside ([Lookup]) have one
//	    order (porcupine; a search that ends without an answer is a violation)
//	C9  no command to a device has two outcomes; C1, C4 and C5 apply to the sweep of commands too
//
// An eviction is an HDEL in one MULTI with a batch's log record. Time is the server's: each
// eviction carries a tick of the witness, each beat the time at which it was written. An event
// without a time happened between its neighbours, and is a violation only if it is one at any
// instant between them. An unknown command on a key of ours is reported, since a judge that skips
// it would find everything in order. Each check has bad histories of its own that it, and no other,
// must reject.
//
// # Exempt from judgement
//
// An event with [history.FaultKey] is played but not judged. The state that it leaves (log,
// witness, total, a heartbeat) is accepted, and judgement resumes with the next event. An owner
// whose heartbeat was deleted that way is exempt from C2 until it has beaten again. A new life of
// the server ([history.LifeCommand]) is played the same way. An epoch of an earlier life must still
// not be drawn again.
//
// # Runs are kept
//
// [Save] writes a run to a folder, and go run ./chaos/rejudge judges it again.
//
// # Limits
//
// A server clock that goes back is not judged.
package judge
