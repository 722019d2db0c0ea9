// Package commands carries commands for devices through Redis, and their outcomes back.
//
//	s := commands.Sender{Client: rdb, Layout: layout, Lookup: reg.Lookup} // in any program
//	outcome, err := s.Send(ctx, commands.Command{IMEI: imei, Text: "getver"})
//
//	r, err := commands.New(commands.Config{Instance: id, Devices: gateway, ...}) // in each instance
//	err = r.Run(ctx)
//
//	janitor.Config{Sweeps: []janitor.Sweeper{commands.NewSweep(layout)}, ...}
//
// Each instance has a stream. All share the stream of outcomes:
//
//	backend ── XADD ──► commands:outbound:{instance} ──► the instance ──► the device's newest socket
//	   ▲                                                       │
//	   └── XREAD ◄── commands:responses ◄── outcome and XACK ──┘   or the janitor's sweep, if it is dead
//
// A command is an entry of the stream of the instance that the registry names for its device:
//
//	id       1 to 128 visible ASCII characters, chosen by the sender, never used before
//	imei     15 digits
//	text     1 to 1024 bytes
//	codec    12, the default, or 14: the device compares the IMEI with its own before it executes
//	expires  unix ms, at most a day ahead; by default a minute after the entry's own time
//
// An outcome is an entry of commands:responses with the fields id, imei, instance, text and status:
//
//	answered       text is the first frame of the device's answer, cut behind 1,280 bytes. With the
//	               field ambiguous (true), text is what came in the three seconds after the first
//	               frame that may be the answer, a line each: the device also sends data of itself
//	               in that codec, or an earlier command was not answered
//	not_connected  the device is not here, and nothing was written to it; text may name its instance
//	busy           too many commands wait, for the device or at the instance; nothing was written
//	wrong_device   codec 14: the device at the socket is another one, and did not execute the command
//	timeout        written, and not answered until expires or until the socket ended; the device may
//	               have executed it
//	expired        expires came before it could be written
//	instance_lost  the instance stopped or died; text says whether the command may have been written
//	invalid        the entry is no command; text says why
//
// # Guarantees
//
// A command is written at most once. It is marked before. The same step checks that expires has not
// come (by Redis' clock) and that the registry names no other instance by now. A new life of an
// instance answers instance_lost for the pending entries that an earlier life has marked.
//
// An id has at most one outcome. One step looks whether there is one, adds it, and removes the
// entry from its stream. So the entries of a stream have no outcome yet. Mark and outcome stay in
// commands:state:{id} until an hour after expires. An entry is removed without an outcome of its
// own if its id is marked for another entry or has an outcome.
//
// If the instance lives, a command has its outcome soon after expires. If it died, the janitor adds
// the outcome after the end of its heartbeat. Commands of one device are written in the order of
// their stream, one at a time, with three seconds between an answer and the next command. Package
// gateway says when an answer could be taken for another command's.
//
// Commands for one device do not delay others. 16 may wait for it, 10,000 for all devices of the
// instance, and once half of these places are taken, one for each device. Further ones are answered
// busy at once. So memory is bounded: some 100 MB, and some 1,600 bytes for an outcome.
//
// The sweep concludes only from a missing heartbeat, under the witness. The janitor's guard checks
// it again on the server, in the step that answers the commands and removes them. A missing roster
// entry, index or registry entry condemns no command. A stream is deleted only when it is empty.
// Only the text follows from an absence: a command without a mark was not sent, for as long as a
// mark would last.
//
// # What is not guaranteed
//
// If a backend trims or deletes a stream of commands, or Redis loses it, commands go without an
// outcome. If Redis loses a mark in a failover or by eviction, and the instance restarts just then,
// a command may be written twice. If the instance died, the outcome may say that the command was
// not sent although it was. The stream of outcomes is capped at about 100,000: some 20 MB of usual
// answers, 170 MB of the longest.
package commands
