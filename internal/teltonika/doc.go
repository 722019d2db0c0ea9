// Package teltonika speaks the wire format of Teltonika GPS trackers: it reads the IMEI handshake
// and frames of TCP and the datagrams of UDP, decodes the records of codecs 8, 8 Extended and 16
// and the commands of codecs 12 to 15, and encodes all of them again, for servers that send
// commands, for tests and for simulated devices. It is pure: the only I/O is the io.Reader handed
// to [NewReader].
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
// One frame is in flight at a time. A device that reads another number than it sent, or none, sends
// the same frame again, so records arrive at least once, and newest first is normal after a gap in
// coverage.
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
// The CRC is CRC-16/ARC over the body; its upper 16 bits are zero. Some firmwares put a group of
// 16-byte values after the 8-byte group of every record and nothing in the frame says so: see
// [Batch.Decode].
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
// A server never acknowledges a frame of codec 12 to 15 ([Codec.IsCommand]); a device answers a
// command with a frame of the same codec, or not at all. Nothing says which command an answer is
// for, so a server:
//
//   - sends the first command only after the first frame of the session that it acknowledged, and
//     never while a frame of records waits for its answer: the device reads those four bytes first;
//   - has one command outstanding on a socket, and after one that went unanswered cannot tell a
//     late answer from the next one's;
//   - expects frames of codec 12, 13 and 15 that it did not ask for, since devices pass on what
//     comes from a serial port.
//
// The vendor's one example of codec 13 has eight bytes of milliseconds where its table has a
// timestamp of four. The table is followed: that example reads as a time in 1970 and a text with
// four bytes too many in front, of which none is lost.
//
// # UDP
//
//	device   length u16 │ packet id u16 │ 01 │ AVL packet id u8 │ 000F + 15 ASCII digits │ body
//	                    └──────────────────────────── length bytes ──────────────────────────┘
//	server   0005       │ packet id u16 │ 01 │ AVL packet id u8 │ number of records taken over u8
//
// There is no handshake and no CRC: a datagram is whole as far as UDP's own checksum tells, and
// from the device that it names as far as the sender is honest. The body is that of a frame. The
// byte 01 means nothing and is not looked at.
//
// # What to do with an error
//
// Lenient where devices are odd, strict where framing is at stake. The sentinels are split by what
// the server owes the device:
//
//	ErrHandshake                                     answer Refuse, close
//	ErrPreamble ErrTooLong ErrTooShort ErrCRC        no answer, close: where the next frame begins is unknown
//	ErrCount ErrUnknownCodec                         no answer, close: how many records to acknowledge is unknown
//	ErrMalformed                                     keep Frame.Raw as a dead letter, then acknowledge Frame.Count, or the
//	                                                 device repeats it for ever and nothing newer gets out
//
// A frame of no records is valid and its answer is the number 0. Where [DecodeMessages] returns one
// of the last three nothing is owed: the frame was one, its CRC was right, and the device does not
// repeat it. Count it and read on.
//
// Over UDP there is nothing to close: no answer, and the device sends again.
//
//	ErrDatagram ErrCount ErrUnknownCodec             no answer
//	ErrMalformed                                     keep the packet as a dead letter, then answer with Datagram.Count
//
// # Memory
//
// No memory is sized by a count or length that a peer declares: a buffer grows as bytes arrive,
// never beyond the cap on a frame, and records, messages and datagrams are views into what arrived.
// In the steady state nothing is allocated. Nothing here panics on any input.
//
// Sources: Teltonika wiki, "Teltonika Data Sending Protocols"; the frames in testdata/vectors.json
// name theirs one by one.
package teltonika
