// Package gateway serves the sockets of Teltonika devices. It greets and registers a device, stores
// what it reports in Redis streams, and only then acknowledges it.
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
// One goroutine serves a socket, and at most one frame of it is under way. A slow Redis delays
// acknowledgements, devices wait for them, and memory holds at most one frame for each connection.
// After ten seconds without Redis the socket is closed, and the device sends the frame again.
// Records are therefore stored at least once, all of a frame or none.
//
// At most as many frames are on their way to Redis as the client has connections for pipelines,
// plus half of its others. The rest of the connections is for the other users of the client.
// Further frames wait undecoded, within the ten seconds. On a Redis Cluster, where connections are
// counted for each node, the streams divide them: each has one at least, and none takes another's.
// So a master that hangs delays only the devices whose streams it has.
//
// # Streams
//
// A device's records, in their order, its messages and its dead letters are in one stream each,
// chosen by its IMEI (Config.Streams). Caps are of all streams together; each stream has an equal
// part of them.
//
// # What becomes of a frame
//
//	decoded                         records to the stream, then acknowledged
//	right CRC, records malformed    raw to the dead-letter stream, then acknowledged with the count
//	                                that the device announced: otherwise it repeats the frame for ever
//	right CRC, unknown codec, or    raw to the dead-letter stream, not acknowledged, closed: the number
//	two different record counts     of records is unknown. The same frame again: acknowledged with the
//	                                first count, since it is kept
//	codecs 12 to 15 (messages)      never acknowledged; a response of 12 or 14 answers the command
//	                                under way, if there is one; all else is stored as messages
//	codecs 12 to 15, malformed      raw to the dead-letter stream, never acknowledged
//	wrong CRC, wrong framing,       counted, closed: even the length may be the broken part
//	above 32 KiB
//
// A frame is a dead letter once: its repeats are acknowledged and not kept again. One device has no
// more than its share of the dead letters (see notes). Each kind of fault of a device is logged
// once, and its last fault is stored in a hash. docs/telemetry.md has the form of all entries.
//
// One device may have 200 records or 32 KiB a second stored, and ten seconds' worth at once. A
// frame beyond that waits, 1.3 s at most, and so does its acknowledgement. The device loses nothing
// and sends no faster. A new socket has nothing saved up. A frame that waits when its socket is
// superseded is not stored. So connecting again gains a device nothing at this replica. N devices
// may store N times as much, and so may a device at N replicas.
//
// # Commands
//
// [Gateway.Command] writes a command to the newest socket of a device, after the session's first
// acknowledgement, never between a frame and its acknowledgement, one at a time. An answer does not
// name its command and may have several frames. Therefore:
//
//   - the first response after a command, in its codec, is its answer. Later ones are messages, and
//     counted (ingest_stray_responses_total);
//   - after an answer, the next command waits until the socket was quiet for three seconds;
//   - what has arrived when a command could be written is read first, and does not answer it (only
//     Unix shows what is still in the socket);
//   - a socket is unsure for a codec as soon as a command of it went unanswered, or a response of
//     it came that no command waited for. On such a socket a command has for its answer all
//     responses that come within three seconds, with ErrAmbiguous. They are messages too.
//
// So a frame of an answer is never taken for another command's without that mark, if two things are
// true. A device sends an answer on the socket of the command. And on a socket on which each
// command had one frame so far, a further frame comes at most three seconds after the first.
// Otherwise the next command may take that frame for its answer. Its own answer is then a stray
// response, and the socket is unsure. Only a new socket for each command would prevent this, but a
// parked device may stay away for an hour after its socket was closed.
//
// A device that sends responses before any command was written sends data of itself, from a serial
// port for example. The gateway remembers that for its next sockets. Ask such a device in the other
// codec.
//
// # Messages
//
// A message is not acknowledged, and the device does not repeat it. While Redis is away, messages
// wait in a queue that is bounded for each device and for all; what does not fit is counted as
// lost, by device. After a reply that was lost they are written again, with the same frame and
// record.
//
// # What is not promised
//
// The streams are capped, approximately. Redis does not say how many of the trimmed entries were
// unread, and they are not counted here. A consumer group's lag (XINFO GROUPS) beside XLEN shows
// whether its readers are fast enough.
//
// A device that registers with another replica leaves a half-open socket here. It is closed a
// minute after this replica was told. If the device speaks here before, the other socket is the
// half-open one.
package gateway
