// Package colyseus has tests of the shipped rules beside real game servers: several processes of
// server.mjs, a small game, on a real Redis. Grace and over are one second, full passes half a
// second apart. chaos/README.md explains how to run them.
//
// # What Colyseus does
//
// In all three versions, TestWhatColyseusDoes and its neighbours see in Redis:
//
//   - A room that lives, in any state, is a field of roomcaches, and its channel $ROOM has one
//     subscriber. While it is in its onCreate it has neither, and at most a reservation.
//   - A room whose onCreate fails leaves its reservation, until it expires. One that is disposed,
//     or whose last client leaves, leaves nothing.
//   - A process has a field of roomcount and a channel p:PROCESS; 0.15 and 0.16 have a set
//     colyseus:nodes.
//   - When a process gets SIGKILL its channels are gone at once. Its listings stay until a process
//     starts, which removes them if roomcount still has the dead one. If a room was ordered from
//     the dead one before, roomcount has lost it; then 0.18 removes the listings when a seat is
//     requested, 0.15 and 0.16 never.
//   - When a process is stopped, and a seat in one of its rooms is requested, all its listings are
//     removed; its channels stay. When it wakes, 0.18 lists its rooms again within seconds, 0.15
//     and 0.16 list a room when it next saves.
//   - An order to a stopped process is carried out twice: two rooms for one user, and the
//     reservation names the later one.
//   - After FLUSHALL channels stay. A room is listed when it next saves, and a new room brings
//     roomcaches back without the others.
//
// # What the worker does
//
// Reservations of living rooms stay, in each state above and during onCreate. Those of rooms that
// were disposed, lost their last client or failed are deleted; after a killed process only with its
// listing, or by their own expiry. DEL roomcaches holds the rule (reference_lost) until one room is
// made; when most rooms vanish at once, their reservations stay for a minute (mass_failure). A
// reservation is deleted, though its room will live, if onCreate takes longer than over.
//
// Rooms made in the instant in which a process starts are not shown: with 0.15 and 0.16 they may
// have no channel, and the listing keeps them.
package colyseus
