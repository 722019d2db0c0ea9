// Package commands carries commands from anybody who can write to Redis to devices, and their outcomes back.
//
//	backend ── XADD ──► commands:outbound:{instance} ──► the instance ──► the device's newest socket
//	   ▲                                                       │
//	   └── XREAD ◄── commands:responses ◄── outcome and XACK ──┘   or the janitor's sweep, if the instance is dead
//
// # A command
//
// is an entry of the stream of the instance that the registry names for its device, with the fields
//
//	id       1 to 128 visible ASCII characters, chosen by the sender, never used before
//	imei     15 digits
//	text     1 to 1024 bytes
//	codec    12, the default, or 14, where the device compares the IMEI with its own before it executes
//	expires  unix ms, at most a day ahead; by default a minute after the entry's own time
//
// # An outcome
//
// is an entry of commands:responses with the fields id, imei, instance, status and text:
//
//	answered       text is what the device answered
//	not_connected  the device is not here, and nothing was written to it; text may name where it is
//	wrong_device   codec 14: what is at the socket is another device, and says that it did not execute the command
//	timeout        written, and not answered until expires, or until the socket ended; it may have been executed
//	expired        expires came before it could be written
//	instance_lost  the instance stopped or died; text says whether the command may have been written
//	invalid        what is in the entry is no command; text says why
//
// # What holds
//
// A command is written at most once. Before that it is marked, in the step that also looks whether expires has come (by Redis'
// clock) and whether the registry names another instance by now. A life of an instance that finds among its own pending entries one
// that an earlier life has marked answers it instance_lost.
//
// An id has at most one outcome: it is written in the step that looks whether there is one, and takes the entry out of its
// stream. So what is in a stream is what has no outcome yet. Mark and outcome stand in commands:state:{id} until an hour after
// expires. An entry whose id is marked for another, or has an outcome, goes without one of its own.
//
// A command whose instance lives has its outcome when expires has come, or soon after; one whose instance died when the janitor
// has passed after the end of its heartbeat. Commands of one device are written in the order of their stream, one at a time.
//
// # What does not
//
// A backend that trims or deletes a stream of commands, or a Redis that loses it, takes commands away without an outcome. Of a
// Redis that fails over and loses a mark, and an instance that restarts just then, a command may be written twice. The stream
// of outcomes is capped at about 100,000.
package commands
