// Package demo shows in a minute what Rollcall is for: replicas of the real program, a fleet of
// simulated trackers, a leader that is killed, a replica that joins, one that is stopped, and the
// registry that becomes the truth again after each.
//
// # The story
//
//	three replicas, the fleet connects ─► all routable, sweeping may begin
//	the leader is killed (SIGKILL)     ─► another leads; what the dead left is swept; its devices come back elsewhere
//	a replica joins                    ─► some devices lose their coverage and come back, on it too
//	the leader is stopped (SIGTERM)    ─► hands everything over; its devices come back elsewhere
//	the end                            ─► the registry is compared with the sockets, one by one
//
// Nothing of it is scripted but what is done and when: every figure on the timeline was measured,
// by a look at Redis every few milliseconds, and each step waits until what it announces has
// happened. A step that waits in vain for Config.Patience ends the demo.
//
// # What is judged
//
// At the end, with nothing under way any more: the registry has an entry for every device, naming
// the replica that holds its socket, and no other; so has each replica's index; the roster and the
// heartbeats are those of the running replicas; every record that was acknowledged to a device is
// in the telemetry stream. Anything else is [ErrDiverged], with each difference named.
//
// # Whose processes, whose Redis
//
// Replicas are child processes, ended whatever happens: when the demo is over, when it fails and
// when its context ends; on Linux also when its own process is killed. Elsewhere that last case
// leaves them running. Redis is the caller's. The demo refuses one that has a fleet's keys
// ([ErrOccupied]), and removes afterwards what it has caused to be written.
package demo
