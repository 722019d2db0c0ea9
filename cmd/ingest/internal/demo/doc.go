// Package demo shows in a minute what Rollcall is for: replicas of the real program, a fleet of
// simulated trackers, a leader that is killed, a replica that joins, one that is stopped, and the
// registry that is right again after each.
//
// # The steps
//
//	three replicas, the fleet connects ─► all routable, sweeping may begin
//	the leader is killed (SIGKILL)     ─► another leads; the entries left are swept; the devices return
//	a replica joins                    ─► some devices lose their coverage and come back, on it too
//	the leader is stopped (SIGTERM)    ─► hands everything over; its devices come back elsewhere
//	the end                            ─► the registry is compared with the sockets, one by one
//
// Only what is done, and when, is fixed. Every figure on the timeline was measured, by reading
// Redis every few milliseconds, and each step waits until what it announces has happened. If that
// takes longer than Config.Patience, the demo ends.
//
// # What is judged
//
// At the end nothing is under way any more. Then the registry has an entry for every device, which
// names the replica with its socket, and no other entry. The index of each replica says the same.
// The roster and the heartbeats are those of the running replicas. Every record that was
// acknowledged to a device is in the telemetry stream. Anything else is [ErrDiverged], with each
// difference named.
//
// # Whose processes, whose Redis
//
// Replicas are child processes. They are ended when the demo is over, when it fails and when its
// context ends; on Linux also when its own process is killed. Redis is the caller's. The demo
// refuses one that has a fleet's keys ([ErrOccupied]), and in the end removes what it caused to be
// written.
package demo
