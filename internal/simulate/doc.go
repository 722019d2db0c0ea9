// Package simulate is a fleet of Teltonika trackers with the habits of real ones, ten thousand of
// them in a process: for trying out a gateway, for loading one, and for showing what a registry
// makes of it. Each device is an [device.Device], the client that the tests of the gateway use;
// what is added here is what devices do by themselves.
//
// # A device's life
//
//	switched on, at a time of its own within Config.Ramp
//	   │
//	   ▼          fails: the ladder's next rung
//	connect ◄──────────────────────────────────────────┐
//	   │ accepted                                      │
//	   ▼                                               │
//	frame due? backlog? ──► write ──► acknowledged ──┐ │
//	   ▲     │ neither                 │ not: the    │ │
//	   │     ▼                         ▼ same again  │ │
//	   │   listen, keep alive        close, or lose  │ │
//	   │     │                       the coverage ───┼─┘
//	   └─────┴───────────────────────────────────────┘
//
// One frame is in flight. It is kept, over reconnects too, until the server answers with its number
// of records: a frame that went out before goes out again byte by byte and is counted as re-sent.
// No answer within Config.Timeout closes the socket; an answer with another number repeats the
// frame on the same socket, at most four times.
//
// A frame is due every Config.Interval, whether or not there is a socket: who was away has more to
// say, up to ten records a frame. Config.Backlog records that were stored before the start are
// emptied whenever nothing is due, without a pause between frames, newest first.
//
// # Habits
//
//   - The ladder of reconnects is the documented one: at once, then after 1, 1, 2, 2, 4, 6, 8, 10
//     and ever again 10 minutes. It begins anew with an acknowledgement, and after coverage was
//     lost, but not with a handshake: a server that accepts and then closes would be called without
//     rest. There is no jitter, as on real devices.
//   - Where a connection goes is drawn anew from the targets each time, as a balancer in front of
//     replicas would decide.
//   - Losing coverage (Config.HalfOpen, or [Fleet.LoseCoverage]) leaves a socket behind that nobody
//     closes, and the device comes back on a new one; the old one is closed when coverage is lost
//     again, or at the end. Half of the losses hit a frame whose answer was under way.
//   - One frame of twenty is written in pieces, one of twenty together with a keep-alive; every
//     fourth pause between frames has a keep-alive in its middle.
//   - A command of codec 12 is answered with its own text. One of codec 14 is answered so if it
//     names this device's IMEI, and else refused with type 11 and this device's IMEI.
//
// # What depends on the seed
//
// IMEIs do not; they count up. The records of a device, in order, and every decision that it draws
// depend on the seed and the device's number alone. When things happen depends on the server, and
// so does which of its frames a decision hits. Records have the times of [device.Track], from a
// fixed epoch on: IMEI and time name a record, in every run with the same seed.
//
// # Cost
//
// A device is one goroutine, one socket (two, if coverage is lost) and about fifteen kilobytes.
// There is no other goroutine. A backlog costs about six bytes a record.
package simulate
