// Package teltonika speaks the wire format of Teltonika GPS trackers over TCP: it reads the IMEI handshake and AVL
// frames, decodes codecs 8, 8 Extended and 16, and encodes them again for tests and simulated devices. It is pure: the only
// I/O is the io.Reader handed to [NewReader].
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
// One frame is in flight at a time. A device that reads another number than it sent, or none, sends the same frame again, so
// records arrive at least once, and newest first is normal after a gap in coverage.
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
// The CRC is CRC-16/ARC over the body; its upper 16 bits are zero. Some firmwares put a group of 16-byte values after the
// 8-byte group of every record and nothing in the frame says so: see [Batch.Decode].
//
// # What to do with an error
//
// Lenient where devices are odd, strict where framing is at stake. The sentinels are split by what the server owes the device:
//
//	ErrHandshake                                     answer Refuse, close
//	ErrPreamble ErrTooLong ErrTooShort ErrCRC        no answer, close: where the next frame begins is unknown
//	ErrCount ErrUnknownCodec                         no answer, close: how many records to acknowledge is unknown
//	ErrMalformed                                     keep Frame.Raw as a dead letter, then acknowledge Frame.Count, or the
//	                                                 device repeats it for ever and nothing newer gets out
//
// A frame of no records is valid and its answer is the number 0. A command frame ([Codec.IsCommand]) is never acknowledged.
//
// # Memory
//
// No memory is sized by a count or length that a peer declares: a buffer grows as bytes arrive, never beyond the cap on a
// frame, and records are views into it. In the steady state nothing is allocated. Nothing here panics on any input.
//
// Sources: Teltonika wiki, "Teltonika Data Sending Protocols"; the frames in testdata/vectors.json name theirs one by one.
package teltonika
