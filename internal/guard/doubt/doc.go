// Package doubt decides what an owner's silence proves. It is the only place where that rule is
// written down. It is pure: no clock, no Redis. Lua has the same rule in two places, Verdict in
// guard.lua and Takes in heal.lua, since those must decide in the step that writes.
//
// Every write that proves an owner's life also writes its Record, in the same step, to a hash that
// never expires. The hash has what the heartbeat lacks: it outlives the owner, it cannot be
// evicted, and it remembers for long enough how the others fared. The rule:
//
//   - An owner may be swept when by its record and its heartbeat it has been silent for its
//     TTL, on a server that has been heard for its GRACE.
//   - If most holders were off while it was off, its silence must last for one more GRACE. Whatever
//     hit most of them hit their way to Redis, and that is often mended soon.
//   - If the server turned a client away within the last GRACE, for ten more GRACE. The owner may
//     be the client that was turned away. There is an end to it, because anybody can cause it.
//
// No leader remembers anything between two readings except when the last one was, so there is no
// protection that can be used up, or lost with its leader. A doubt is about one owner; the others
// are swept meanwhile.
//
// All times are ms by the server's clock. GRACE is the owner's own TTL and two seconds.
package doubt
