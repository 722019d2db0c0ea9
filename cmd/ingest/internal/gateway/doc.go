// Package gateway serves the sockets of Teltonika devices: it registers a device, stores its
// reports in Redis streams, and only then acknowledges them.
//
//	g := gateway.New(gateway.Config{
//		Register: func(imei string, end func() error) gateway.Claim {
//			return reg.Register(imei, registry.Socket{Close: end})
//		},
//		Client:   rdb,
//	})
//	ln, err := gateway.Listen(ctx, ":5027")
//	err = g.Serve(ctx, ln) // until ctx ends, then drains
//
//	answer, err := g.Command(ctx, gateway.Command{IMEI: imei, Text: []byte("getver"), ...})
//
// # A socket's life
//
//	accept ─► handshake ─► claim ─► 01 ─► frame ─► store ─► acknowledge ─┐
//	              │                   ▲                 │                │
//	              └─► 00, close       └─────────────────┼────────────────┘
//	                                                    └─► close: no acknowledgement
//
// One goroutine serves a socket, one frame at a time, so memory holds at most one frame per
// connection. After ten seconds without Redis the socket is closed, and the device sends the frame
// again: records are stored at least once, a frame's all or none.
//
// Frames in flight to Redis may use the client's pipeline connections and half of its others.
// Further frames wait undecoded, within the ten seconds. On a Redis Cluster the streams divide each
// node's connections, so a master that hangs delays only the devices whose streams it holds.
//
// # Streams
//
// A device's records, in order, its messages and its dead letters each go to one stream, chosen
// by its IMEI (Config.Streams). Caps cover all streams together, in equal parts.
//
// # Outcomes of a frame
//
// A decoded frame's records go to the stream, and it is acknowledged. One with a right CRC that
// cannot be decoded becomes a dead letter: docs/reference/telemetry.md states which of these are
// acknowledged, with which count, and which end the socket. Any other framing fault is counted and
// closes the socket, since even the length may be the broken part. Codecs 12 to 15 are never
// acknowledged: a response of 12 or 14 answers the pending command, if any, and everything else is
// stored as messages.
//
// A frame becomes a dead letter once, and each device has a share of the dead letters (see notes).
// Each kind of fault is logged once per device, and a device's last fault is stored in a hash
// (docs/reference/telemetry.md).
//
// A device may store 200 records or 32 KiB per second (docs/devices.md). A new socket has no burst
// allowance, and a frame that waits while its device connects again is not stored: reconnecting
// gains nothing, except at another replica.
//
// # Commands
//
// [Gateway.Command] writes a command to a device's newest socket, one at a time, after the
// session's first acknowledgement, and never between a frame and its acknowledgement.
// docs/devices.md states which response is the answer, and which wrong ones can go unnoticed. Only
// a new socket per command would prevent those, but a parked device may stay away for an hour after
// its socket was closed. Beside that:
//
//   - Data that arrived before the command could be written is read first and does not answer it
//     (only Unix shows the unread data of a socket).
//   - A socket becomes unsure for a codec once a command in it gets no answer, or an unexpected
//     response in it arrives. A command on an unsure socket is answered by all responses within
//     three seconds, with ErrAmbiguous; they are messages too.
//   - A device that sends responses before any command sends its own data, for example from a
//     serial port. The gateway remembers this for its later sockets.
//
// # Messages
//
// Devices do not repeat messages, so they wait while Redis is away, within the bounds of
// docs/reference/telemetry.md. If Redis' reply is lost, they are written again with the same frame
// and record.
//
// # Limits
//
// Nobody counts unread entries that a stream's cap trims. To see whether readers keep up, compare
// their group's lag (XINFO GROUPS) with XLEN.
//
// A device that registers with another replica leaves a half-open socket here. It is closed a
// minute after this replica learns of it, unless the device speaks here first: then the other
// socket is the half-open one.
package gateway
