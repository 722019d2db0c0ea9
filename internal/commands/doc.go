// Package commands carries commands from anybody who can write to Redis to devices, and their
// outcomes back.
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
//	answered       text is what the device answered: its first frame, cut behind 1,280 bytes
//	not_connected  the device is not here, and nothing was written to it; text may name where it is,
//	               or say why its socket was closed
//	busy           too many commands wait, for the device or at the instance; nothing was written
//	wrong_device   codec 14: what is at the socket is another device, and says that it did not execute the command
//	timeout        written, and not answered until expires, or until the socket ended; it may have been executed
//	expired        expires came before it could be written
//	instance_lost  the instance stopped or died; text says whether the command may have been written
//	invalid        what is in the entry is no command; text says why
//
// # What holds
//
// A command is written at most once. Before that it is marked, in the step that also looks whether
// expires has come (by Redis' clock) and whether the registry names another instance by now. A life
// of an instance that finds among its own pending entries one that an earlier life has marked
// answers it instance_lost.
//
// An id has at most one outcome: it is written in the step that looks whether there is one, and
// takes the entry out of its stream. So what is in a stream is what has no outcome yet. Mark and
// outcome stand in commands:state:{id} until an hour after expires. An entry whose id is marked for
// another, or has an outcome, goes without one of its own.
//
// A command whose instance lives has its outcome when expires has come, or soon after; one whose
// instance died when the janitor has passed after the end of its heartbeat. Commands of one device
// are written in the order of their stream, one at a time, with three seconds between an answer and
// the next command.
//
// Commands for one device are in nobody else's way: 16 may wait for it, 10,000 for all devices of
// the instance, and once half of these places are taken one for each device. What is beyond that is
// answered busy at once. Its memory is bounded so: some 100 MB. An outcome has some 1,600 bytes at
// most.
//
// What package gateway says about answers holds for outcomes: none holds a frame of another
// command's answer, but for one that came more than three seconds after the first of a device that
// had sent single frames until then.
//
// # The dead
//
// The sweep concludes from nothing but a missing heartbeat, under the witness, which the janitor's
// guard checks again on the server in the step that answers the commands and removes them. That an
// instance is not in the roster, that it has no index, that a device has no entry: none of that
// condemns a command. A stream is only taken away when it is empty. The one thing that is read from
// an absence is the text: a command without a mark is said not to have been sent, until the hour
// has passed for which a mark would last.
//
// # What does not
//
// A backend that trims or deletes a stream of commands, or a Redis that loses it, takes commands
// away without an outcome. Where Redis loses a mark, because it failed over or evicted it, and the
// instance restarts just then, a command may be written twice; where the instance died, its outcome
// may say that it was not sent although it was. The stream of outcomes is capped at about 100,000:
// some 20 MB of usual answers, 170 MB of the longest.
package commands
