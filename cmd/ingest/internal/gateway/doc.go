// Package gateway serves the sockets of Teltonika devices: it registers a device, stores its
// reports in Redis streams, and only then acknowledges them.
//
//	g, err := gateway.New(gateway.Config{
//		Register: func(imei string) gateway.Claim { return reg.Register(imei) },
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
// again. Records are therefore stored at least once, and a frame's records all or none.
//
// Frames in flight to Redis are bounded by the client's pipeline connections plus half of its
// others; the rest serve the client's other users. Further frames wait undecoded, within the ten
// seconds. On a Redis Cluster the streams divide each node's connections, so a master that hangs
// delays only the devices whose streams it holds.
//
// # Streams
//
// A device's records, in order, its messages and its dead letters each go to one stream, chosen
// by its IMEI (Config.Streams). Caps cover all streams together, in equal parts.
//
// # Outcomes of a frame
//
//	decoded                         records to the stream, then acknowledged
//	right CRC, records malformed    raw to the dead-letter stream, then acknowledged with the count
//	                                that the device announced: else it repeats the frame for ever
//	right CRC, unknown codec, or    raw to the dead-letter stream, not acknowledged, closed: the
//	two different record counts     number of records is unknown. A repeat is acknowledged with the
//	                                first count, since the frame is already kept
//	codecs 12 to 15 (messages)      never acknowledged; a response of 12 or 14 answers the pending
//	                                command, if any; everything else is stored as messages
//	codecs 12 to 15, malformed      raw to the dead-letter stream, never acknowledged
//	wrong CRC, wrong framing,       counted, closed: even the length may be the broken part
//	above 32 KiB
//
// A frame becomes a dead letter once: repeats are acknowledged and not kept again. Each device is
// limited to its share of the dead letters (see notes). Each kind of fault is logged once per
// device, and a device's last fault is stored in a hash (docs/reference/telemetry.md).
//
// A device may store 200 records or 32 KiB per second, with bursts of ten seconds' worth. A frame
// beyond that waits at most 1.3 s, and so does its acknowledgement: the device sends no faster, and
// loses nothing. A new socket has no burst allowance, and a frame that waits while its socket is
// superseded is not stored, so reconnecting gains nothing at this replica. At N replicas one device
// may store N times as much.
//
// # Commands
//
// [Gateway.Command] writes a command to a device's newest socket, one at a time, after the
// session's first acknowledgement, and never between a frame and its acknowledgement. An answer
// does not name its command and may have several frames. Therefore:
//
//   - The first response after a command, in its codec, is its answer. Later ones are messages,
//     and counted (ingest_stray_responses_total).
//   - After an answer, the next command waits until the socket has been quiet for three seconds.
//   - Data that arrived before the command could be written is read first and does not answer it
//     (only Unix shows the unread data of a socket).
//   - A socket becomes unsure for a codec once a command in it gets no answer, or an unexpected
//     response in it arrives. A command on an unsure socket is answered by all responses within
//     three seconds, with ErrAmbiguous. They are stored as messages too.
//
// So a frame of one answer is never taken for another command's without that mark, on two
// conditions. A device answers on the command's socket. And if each command on a socket has had one
// frame so far, a further frame arrives at most three seconds after the first. Otherwise the next
// command may take that frame for its answer, and its own is then a stray response. Only a new
// socket per command would prevent this, but a parked device may stay away for an hour after its
// socket was closed.
//
// A device that sends responses before any command sends its own data, for example from a serial
// port. The gateway remembers this for its later sockets. Use the other codec for it.
//
// # Messages
//
// Messages are not acknowledged, and devices do not repeat them. While Redis is away, they wait
// in a queue that is bounded per device and overall; the excess is counted as lost, by device. If
// Redis' reply is lost, they are written again with the same frame and record.
//
// # Limits
//
// The streams are capped, approximately. Neither Redis nor the gateway counts trimmed entries that
// were unread. To see whether readers keep up, compare their group's lag (XINFO GROUPS) with XLEN.
//
// A device that registers with another replica leaves a half-open socket here. It is closed a
// minute after this replica learns of it, unless the device speaks here first: then the other
// socket is the half-open one.
package gateway
