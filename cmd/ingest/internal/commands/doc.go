// Package commands carries commands to devices through Redis, and their outcomes back.
//
//	s := commands.Sender{Client: rdb, Layout: layout, Lookup: reg.Lookup} // in any program
//	outcome, err := s.Send(ctx, commands.Command{IMEI: imei, Text: "getver"})
//
//	r, err := commands.New(commands.Config{Instance: id, Devices: gateway, ...}) // in each instance
//	err = r.Run(ctx)
//
//	janitor.Config{Sweeps: []janitor.Sweeper{commands.NewSweep(layout)}, ...}
//
// Each instance has a stream; all share that of outcomes:
//
//	backend ── XADD ──► commands:outbound:{instance} ──► the instance ──► the device's newest socket
//	   ▲                                                       │
//	   └── XREAD ◄── commands:responses ◄── outcome and XDEL ──┘   or the janitor's sweep, if it is dead
//
// One more stream, commands:queue, has the commands that wait for devices, wherever those connect.
//
// A command is an entry in the stream of the instance that the registry names for its device, or in
// the queue. An outcome is an entry of commands:responses. docs/devices.md lists the fields of
// both, and what each status means.
//
// # Guarantees
//
// A command is written at most once. It is marked first, in a step that also checks that it has
// not expired (by Redis' clock) and that the registry names no other instance; in other partitions
// than the first, the registry is asked just before. The mark is a pending entry of the stream's
// group: command and mark are one key. commands:state:{id} names who made it. When an instance
// restarts, it answers instance_lost for what its earlier life marked.
//
// An id has at most one outcome: one step checks that none exists, adds it, and removes the entry.
// The outcome is kept in commands:state:{id} until an hour after expires. A second entry with the
// same id is removed without an outcome.
//
// A living instance adds the outcome by shortly after expires; for a dead one the janitor does,
// once its heartbeat has expired. Commands for one device are written in stream order, one at a
// time, with three seconds between an answer and the next command.
//
// A queued command stays in the queue until its outcome. No instance sends what has a mark. An
// instance that has written nothing removes its own. Every instance may add an outcome where there
// is evidence: expired if Redis' clock is past expires and nobody sent the command; busy if Redis
// counts enough entries; instance_lost if it was sent more than two minutes ago, or by an earlier
// life of the same instance. Only the instance that the registry names for a device marks its
// commands. A call that it gave up, and that lands later, undoes no newer mark.
//
// Commands for one device do not delay others: up to 16 may wait for a device and 10,000 at an
// instance; once half of these places are taken, one per device. The queue has as many places for
// the whole fleet. Further commands are answered busy at once. An outcome takes some 1,600 bytes.
//
// The sweep acts only on a missing heartbeat, under the witness. The guard checks it again on the
// server, in the step that answers and removes the commands. A missing roster entry, index or
// registry entry condemns no command. Only an outcome's text relies on an absence: a command
// without a mark was not sent.
//
// # Not guaranteed
//
// Queued commands that a FLUSHALL or a failover loses get no outcome.
//
// Nor do commands whose stream a backend trims or deletes, or Redis loses. A command may be written
// twice if a failover loses a mark just when the instance restarts.
package commands
