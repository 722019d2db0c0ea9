package teltonika

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
)

const (
	// DefaultMaxBody is above the 1,280 bytes that trackers document: 255 records of codec 8E need
	// at least 9,693, and serial data and cameras send more.
	DefaultMaxBody = 32 << 10

	header   = 8          // preamble and length
	overhead = header + 4 // and CRC
	minBody  = 3          // codec id and the two counts

	// firstBuffer fits the largest frame that trackers document. Every connection costs it.
	firstBuffer = 1536

	// keptBuffer is the most that a connection keeps between frames.
	keptBuffer = 8 << 10

	keepAlive = 0xFF
)

// Frame is verified by length and CRC. Its slices are views, valid until the Reader's next call.
type Frame struct {
	Codec Codec
	Count byte   // of records, to acknowledge, unverified; of messages if Codec.IsCommand
	Body  []byte // codec id to second count, for Batch.Decode or DecodeMessages
	Raw   []byte // preamble to CRC, for a dead letter
}

// Reader reads one device's byte stream: first [Reader.IMEI], then frames. Packets may be cut
// anywhere. A Reader is not safe for concurrent use.
//
// A framing error is final, since nothing in the stream marks the next frame: every later call
// returns the same error. An error of the source is passed on, an end within a frame as
// io.ErrUnexpectedEOF. It loses nothing: after a timeout the same call may be repeated.
//
// A device needs two deadlines:
//
//	for {
//		conn.SetReadDeadline(now.Add(idle))    // renewed by keep-alives, since Await returns after them
//		if started, err := r.Await(); err != nil {
//			return err
//		} else if !started {
//			continue
//		}
//		conn.SetReadDeadline(now.Add(complete))
//		frame, err := r.Next()
//		...
//	}
type Reader struct {
	src    io.Reader
	max    int
	buf    []byte
	lo, hi int   // buf[lo:hi] is not consumed
	fault  error // final framing error
}

// NewReader refuses frames with a declared length above maxBody; 0 means DefaultMaxBody.
func NewReader(src io.Reader, maxBody int) *Reader {
	return &Reader{src: src, max: cmp.Or(maxBody, DefaultMaxBody), buf: make([]byte, firstBuffer)}
}

// Unparsed returns what was read and belongs to no returned frame: after a framing error, the
// beginning of the bad data. It is a view, valid until the next call.
func (r *Reader) Unparsed() []byte { return r.buf[r.lo:r.hi] }

// Await waits for a sign of life at a frame boundary. It returns true once a frame has begun, and
// false after keep-alive bytes alone. It does not read if a frame has begun in the buffer.
func (r *Reader) Await() (started bool, err error) {
	if r.fault != nil {
		return false, r.fault
	}
	if err := r.have(1); err != nil {
		return false, err
	}
	for r.lo < r.hi && r.buf[r.lo] == keepAlive {
		r.lo++
	}
	return r.lo < r.hi, nil
}

func (r *Reader) begin() error {
	for {
		if started, err := r.Await(); started || err != nil {
			return err
		}
	}
}

// Next reads a frame, skipping keep-alive bytes before it. It returns ErrPreamble, ErrTooLong or
// ErrTooShort at the first wrong byte, without reading on, and ErrCRC after the whole frame.
func (r *Reader) Next() (Frame, error) {
	if err := r.begin(); err != nil {
		return Frame{}, err
	}
	// One wrong byte is enough: do not wait for more from an HTTP client.
	if b := r.buf[r.lo]; b != 0 {
		return Frame{}, r.fail(ErrPreamble, "it begins with 0x%02x", b)
	}
	if err := r.have(header); err != nil {
		return Frame{}, err
	}
	if p := binary.BigEndian.Uint32(r.buf[r.lo:]); p != 0 {
		return Frame{}, r.fail(ErrPreamble, "it is 0x%08x", p)
	}
	length := binary.BigEndian.Uint32(r.buf[r.lo+4:])
	if uint64(length) > uint64(r.max) {
		return Frame{}, r.fail(ErrTooLong, "it declares %d bytes, the cap is %d", length, r.max)
	}
	if length < minBody {
		return Frame{}, r.fail(ErrTooShort, "it declares %d bytes", length)
	}
	size := int(length) + overhead
	if err := r.have(size); err != nil {
		return Frame{}, err
	}
	raw := r.buf[r.lo : r.lo+size : r.lo+size]
	body := raw[header : size-4 : size-4]
	// All 32 bits count: no device computes anything in the upper half.
	if says, is := binary.BigEndian.Uint32(raw[size-4:]), CRC(body); says != uint32(is) {
		return Frame{}, r.fail(ErrCRC, "frame says %08x, computed %04x", says, is)
	}
	r.lo += size
	return Frame{Codec: Codec(body[0]), Count: body[1], Body: body, Raw: raw}, nil
}

func (r *Reader) fail(sentinel error, format string, args ...any) error {
	r.fault = fmt.Errorf("%w: %s", sentinel, fmt.Sprintf(format, args...))
	return r.fault
}

// have's n is at most max + overhead.
func (r *Reader) have(n int) error {
	for idle := 0; r.hi-r.lo < n; {
		r.makeRoom()
		m, err := r.src.Read(r.buf[r.hi:])
		r.hi += m
		switch {
		case m > 0: // an error returned with the bytes will return again
			idle = 0
		case err == io.EOF && r.hi > r.lo:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		default:
			if idle++; idle == 100 { // as many as bufio allows
				return io.ErrNoProgress
			}
		}
	}
	return nil
}

// makeRoom doubles the buffer only when one frame fills it. An empty large buffer is released.
func (r *Reader) makeRoom() {
	if r.lo == r.hi {
		r.lo, r.hi = 0, 0
		if len(r.buf) > keptBuffer {
			r.buf = make([]byte, firstBuffer)
		}
	}
	if r.hi < len(r.buf) {
		return
	}
	to := r.buf
	if r.lo == 0 {
		to = make([]byte, min(2*len(r.buf), r.max+overhead))
	}
	r.hi = copy(to, r.buf[r.lo:r.hi])
	r.lo, r.buf = 0, to
}
