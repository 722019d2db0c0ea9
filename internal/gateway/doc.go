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
// # Commands
//
// [Gateway.Command] sends one to the newest socket of a device: after the
// session's first acknowledgement, never between a frame and its own, one at a
// time. Nothing on the wire says which command an answer is for. So a socket on
// which one went unanswered is closed when the next one comes, unless the late
// answer came meanwhile: the device is back on a new one at once, and no answer
// is ever taken for another command's.
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
