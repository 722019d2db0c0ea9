// Package demo shows Rollcall at work in a minute, with replicas of the real program and a fleet of
// simulated trackers.
//
// # The steps
//
//	three replicas, the fleet connects ─► all routable, sweeping may begin
//	the leader is killed (SIGKILL)     ─► another leads; the entries left are swept; the devices return
//	a replica joins                    ─► some devices lose their coverage and come back, on it too
//	the leader is stopped (SIGTERM)    ─► hands everything over; its devices come back elsewhere
//	the end                            ─► the registry is compared with the sockets, one by one
//
// Only the actions and their order are scripted. Every figure on the timeline is measured, by
// reading Redis every few milliseconds, and each step waits for the events it announces.
//
// # The verdict
//
// At the end everything is at rest. The registry must then have exactly one entry per device,
// which names the replica with its socket. The indexes must agree. The roster and the heartbeats
// must be those of the running replicas. Every acknowledged record must be in the telemetry
// stream. Anything else is [ErrDiverged], with each difference named.
//
// # Processes and Redis
//
// Replicas are child processes. They end when the demo ends, fails or loses its context; on Linux
// also when its own process is killed. Redis belongs to the caller. The demo refuses one that has
// a fleet's keys ([ErrOccupied]), and finally removes everything that it caused to be written.
package demo
