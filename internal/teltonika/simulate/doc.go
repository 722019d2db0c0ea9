// Package simulate is a fleet of Teltonika trackers that behave like real ones, ten thousand of
// them in a process:
//
//	fleet, err := simulate.New(simulate.Config{Devices: 100, Targets: []string{"127.0.0.1:5027"}})
//	...
//	go fleet.Run(ctx) // until ctx ends
//	fmt.Println(fleet.Counts().Records, "records acknowledged")
//
// Each device is a [device.Device]; this package adds its own behaviour.
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
// One frame is in flight. It is the same until the server answers with its number of records, even
// across reconnects. Without an answer within Config.Timeout, the socket is closed. After another
// number, the frame is repeated on it, at most four times.
//
// A frame is due every Config.Interval, with or without a socket. After a time without one, frames
// have up to ten records. Config.Backlog is sent whenever no frame is due, without a pause between
// frames, newest first.
//
// # Habits
//
//   - The ladder of reconnects is the documented one: at once, then after 1, 1, 2, 2, 4, 6, 8, 10
//     and then every 10 minutes, without jitter, as on real devices. It restarts after an
//     acknowledgement and after lost coverage, but not after a handshake, or devices would
//     ceaselessly call a server that accepts and then closes.
//   - Each connection draws its target anew.
//   - Losing coverage (Config.HalfOpen, or [Fleet.LoseCoverage]) leaves a socket that nobody
//     closes, and the device comes back on a new one. The old socket is closed at the next loss
//     of coverage, or at the end. Half of the losses hit a frame whose answer is under way.
//   - One frame in twenty is written in pieces, and one in twenty together with a keep-alive.
//     Every fourth pause between frames has a keep-alive in its middle.
//   - A command of codec 12 is answered with its own text. So is one of codec 14 that names this
//     device's IMEI; any other is refused with type 11 and this device's IMEI.
//
// # Determinism
//
// A device's records, in order, and everything that it draws depend only on the seed and the
// device's number. The timing of events, and the frame that each one hits, depend on the server.
// IMEI and time ([device.Track]) identify a record, in every run with the same seed.
//
// # Cost
//
// A device is one goroutine, one socket (two after lost coverage) and about fifteen kilobytes. A
// backlog costs about six bytes per record.
package simulate
