// Package sim is Teltonika trackers that behave like real ones: one, many that a test moves, or
// ten thousand that live by themselves.
//
//	d := sim.New("356307042441013", 0)
//	accepted, err := d.Connect(ctx, "127.0.0.1:5027")
//	acked, err := d.Send(ctx, teltonika.Codec8, sim.NewTrack(seed).Next(3)...)
//
//	s, err := sim.Simulate(sim.Config{Devices: 100, Targets: []string{"127.0.0.1:5027"}})
//	go s.Run(ctx) // until ctx ends
//	fmt.Println(s.Counts().Records, "records acknowledged")
//
// A device that has lost its network forgets its socket, and comes back on a new one: connecting
// again leaves the former socket open and silent until [Device.DropStale]. No method leaves a
// goroutine behind.
//
// # A simulated device's life
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
//   - Losing coverage (Config.HalfOpen, or [Simulation.LoseCoverage]) leaves a socket that nobody
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
// IMEI and time ([Track]) identify a record, in every run with the same seed.
//
// # Cost
//
// A device is one goroutine, one socket (two after lost coverage) and about fifteen kilobytes.
package sim
