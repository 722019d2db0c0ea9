// Package gateway keeps the sockets of Teltonika devices: it greets them,
// registers them, stores what they report and only then acknowledges it.
//
// # A socket's life
//
//	accept ─► handshake ─► claim ─► 01 ─► frame ─► store ─► acknowledge ─┐
//	              │                   ▲                 │                │
//	              └─► 00, close       └─────────────────┼────────────────┘
//	                                                    └─► close: no acknowledgement
//
// One goroutine serves a socket, and at most one frame of it is under way: a
// slow Redis delays acknowledgements, devices wait for them, and nothing queues
// up in memory. An acknowledgement is never later than ten seconds; then the
// socket is closed and the device sends the frame again. Records are therefore
// stored at least once, all of a frame or none.
//
// Frames under way to Redis are at most as many as the client's connections for pipelines and half
// of its others: that leaves connections to whoever shares the client. Those beyond wait, within
// the ten seconds, as they came from the device. Memory under load is so bounded by one frame for
// each connection.
//
// # What becomes of a frame
//
//	decoded                         records to the stream, then acknowledged
//	right CRC, records malformed    raw to the dead-letter stream, then acknowledged with
//	                                the count that the device announced, since it would
//	                                send the frame for ever and nothing newer
//	right CRC, unknown codec, or    raw to the dead-letter stream, not acknowledged, closed:
//	two different record counts     how many records there were is not known
//	codecs 12 to 15 (commands)      counted; never acknowledged, by protocol; a response of 12 or
//	                                14 is the answer to the command under way, if there is one
//	wrong CRC, wrong framing        counted, closed: even the length may be the broken part
//
// # What one device may send
//
// 200 records or 32 KiB a second, and ten seconds' worth at once. A frame beyond that waits before
// it is stored, 1.3 s at the most, and so does its acknowledgement: the device sends no faster, and
// loses nothing. A new socket has nothing saved up, and a socket that is superseded while its frame
// waits stores nothing any more: connecting again gains a device nothing at this replica. N devices
// may have N times as much stored, and a device that is at several replicas at once as much at
// each.
//
// # Commands
//
// [Gateway.Command] sends one to the newest socket of a device: after the session's first
// acknowledgement, never between a frame and its own, one at a time. Nothing on the wire says which
// command an answer is for, and an answer may have several frames. So:
//
//   - the first response behind a command, in its codec, is its answer. Later ones are dropped and
//     counted (ingest_stray_responses_total);
//   - the next command waits until the socket was quiet for three seconds after an answer, or until
//     it expires;
//   - what had arrived when a command is written is read first, and is no answer to it (on Unix:
//     elsewhere only what the process has taken off the socket can be seen);
//   - a socket is doubtful as soon as a command went unanswered on it, or a response came that no
//     command waited for; of the latter only for commands in the codec of that response. Nothing
//     that comes later ends it. The next command is not written but closes the socket: the device
//     comes back on a new one.
//
// So no frame of an answer is taken for another command's, as long as two things are true. A device
// sends an answer on the socket on which it was asked. And no further frame of an answer comes more
// than three seconds after its first, on a socket on which until then each command had exactly one.
// The next command may have been written by then, and takes that frame for its answer; its own
// answer is then one that nobody waits for, is counted, and makes the socket doubtful. Only a
// socket for each command could rule that out, and a parked device may stay away for an hour once
// its socket was closed.
//
// What a device sends of itself in the codec of the command that is under way, a serial port's data
// say, passes for the answer: nothing tells them apart. Such a device is asked in the other codec.
//
// # What is not promised
//
// The streams are capped, approximately. Redis does not say how many of the
// entries that it trims nobody had read, and they are not counted here; a
// consumer group's lag (XINFO GROUPS) beside XLEN tells whether its readers
// keep up.
//
// A device that registers with another replica leaves a half-open socket here. It
// is closed a minute after this replica was told, unless it speaks: then it is the
// other one that was half open.
package gateway
