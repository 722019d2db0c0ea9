// Package teltonika implements the wire format of Teltonika GPS trackers: the IMEI handshake and
// frames of TCP. It decodes and encodes the records of codecs 8, 8
// Extended and 16 and the commands of codecs 12 to 15.
//
//	r := teltonika.NewReader(conn, 0)
//	imei, err := r.IMEI() // answer Accept or Refuse
//	var batch teltonika.Batch
//	for {
//		frame, err := r.Next()
//		...
//		if err := batch.Decode(frame.Body); err == nil {
//			store(imei, batch.Records)
//			conn.Write(teltonika.AppendAck(nil, len(batch.Records)))
//		}
//	}
//
// # The session
//
//	device                                server
//	000F + 15 ASCII digits  ───────────►
//	                        ◄───────────  01 accept, 00 refuse (then close)
//	AVL frame               ───────────►
//	                        ◄───────────  u32: number of records taken over
//	FF                      ───────────►  keep-alive at any frame boundary, even before the IMEI: no answer
//
// One frame is in flight at a time. Without an answer, or with a wrong number, the device sends the
// frame again: records arrive at least once, and after a gap in coverage often newest first.
//
// # The frame
//
//	00000000 │ length u32 │ codec u8 │ N1 u8 │ N1 records │ N2 u8 │ CRC u32
//	                      └────────── body: length bytes ─────────┘
//
//	record:  time u64 ms │ priority u8 │ lon i32 │ lat i32 │ alt i16 │ angle u16 │ sats u8 │ speed u16 │ IO
//	IO:      event │ (codec 16: generation u8) │ total │ groups of 1-, 2-, 4- and 8-byte values │ (8E: NX)
//	group:   count │ count × (id, value)           NX: count │ count × (id, length u16, bytes)
//
//	widths in bytes      event   total   counts   ids
//	codec 8                1       1       1       1
//	codec 8E               2       2       2       2
//	codec 16               2       1       1       2
//
// The CRC is CRC-16/ARC over the body, its upper 16 bits zero. Some firmwares add an unannounced
// group of 16-byte values after the 8-byte group of every record: see [Batch.Decode].
//
// # Commands
//
//	body:     codec u8 │ N1 u8 │ N1 messages, in practice one │ N2 u8
//	message:  type u8 │ size u32 │ (13, 15: timestamp u32 s) │ (14, 15: IMEI, 8 bytes of BCD) │ text
//	                             └────────────────────────── size bytes ─────────────────────────┘
//
//	codec   direction             types
//	  12    both                  05 command, 06 answer, 0D camera (binary, both ways)
//	  13    device to server      05 or 06
//	  14    both                  05 command, 06 answer, 11 not executed, since the IMEI is another's
//	  15    device to server      any
//
// A server never acknowledges a frame of codecs 12 to 15. A device answers a command in its codec,
// or not at all, and the answer does not name the command. Therefore a server:
//
//   - sends the first command only after it has acknowledged a frame of the session, and never
//     while a frame of records waits for its answer: the device reads those four bytes first;
//   - has one command outstanding per socket, and knows that a late answer looks like one to the
//     next command;
//   - expects unsolicited frames of codecs 12, 13 and 15. Devices forward the data of a serial
//     port.
//
// The vendor's only example of codec 13 has a timestamp of eight bytes of milliseconds, the
// vendor's table four bytes. This package follows the table, and reads the example as a time in
// 1970 and a text with four extra bytes.
//
// # Errors
//
// Each sentinel requires an action of the server:
//
//	ErrHandshake                 answer Refuse, close
//	ErrPreamble, ErrTooLong      no answer, close: the beginning of the next frame is unknown
//	ErrTooShort, ErrCRC          the same
//	ErrCount, ErrUnknownCodec    keep Frame.Raw as a dead letter; no answer, close: the number of
//	                             records is unknown. If the device repeats the frame, acknowledge
//	                             Frame.Count, the only number available
//	ErrMalformed                 keep Frame.Raw as a dead letter, then acknowledge Frame.Count:
//	                             otherwise the device repeats the frame for ever and sends nothing newer
//
// A frame without records is answered with the number 0. If [DecodeMessages] returns one of the
// last three errors, no answer is due, and the device does not repeat the frame: keep it as a dead
// letter and read on.
//
// # Memory
//
// Buffers grow as bytes arrive, up to the cap on a frame, and never by what a peer declares.
// Records and messages are views into these bytes. The steady state allocates nothing.
// No input makes this package panic.
//
// Sources: Teltonika wiki, "Teltonika Data Sending Protocols"; each frame in
// testdata/vectors.json names its own.
package teltonika
