// Package simulate is a fleet of Teltonika trackers that behave like real ones, ten thousand of
// them in a process. It is for trying out a gateway, for loading one, and for showing what a
// registry makes of it:
//
//	fleet, err := simulate.New(simulate.Config{Devices: 100, Targets: []string{"127.0.0.1:5027"}})
//	...
//	go fleet.Run(ctx) // until ctx ends
//	fmt.Println(fleet.Counts().Records, "records acknowledged")
//
// Each device is a [device.Device]. This package adds what devices do by themselves.
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
// One frame is in flight. It is kept until the server answers with its number of records, over
// reconnects too: a frame that was written before is written again byte by byte, and counted as
// re-sent. No answer within Config.Timeout closes the socket. An answer with another number repeats
// the frame on the same socket, at most four times.
//
// A frame is due every Config.Interval, with or without a socket. After a time without one, frames
// have up to ten records. The records of Config.Backlog were stored before the start. They are sent
// whenever no frame is due, without a pause between frames, newest first.
//
// # Habits
//
//   - The ladder of reconnects is the documented one: at once, then after 1, 1, 2, 2, 4, 6, 8, 10
//     and then every 10 minutes, without jitter, as on real devices. It begins anew after an
//     acknowledgement, and after coverage was lost, but not after a handshake: otherwise a server
//     that accepts and then closes would be called without rest.
//   - The target of each connection is drawn anew, as a balancer in front of replicas would do.
//   - Losing coverage (Config.HalfOpen, or [Fleet.LoseCoverage]) leaves a socket that nobody
//     closes, and the device comes back on a new one. The old socket is closed when coverage is
//     lost again, or at the end. Half of the losses hit a frame whose answer was under way.
//   - One frame of twenty is written in pieces, one of twenty together with a keep-alive. Every
//     fourth pause between frames has a keep-alive in its middle.
//   - A command of codec 12 is answered with its own text. So is one of codec 14 that names this
//     device's IMEI; any other is refused with type 11 and this device's IMEI.
//
// # What depends on the seed
//
// IMEIs do not; they count up. The records of a device, in order, and everything that it draws
// depend on the seed and the device's number alone. When something happens depends on the server,
// and so does the frame that it happens to. Records have the times of [device.Track], which begin
// at a fixed time: IMEI and time name a record, in every run with the same seed.
//
// # Cost
//
// A device is one goroutine, one socket (two after coverage was lost) and about fifteen kilobytes.
// There is no other goroutine. A backlog costs about six bytes a record.
package simulate
