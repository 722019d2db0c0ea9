package teltonika

import (
	"encoding/binary"
	"fmt"
	"io"
)

const (
	// DefaultMaxBody is the default cap on a frame's declared length. Trackers document 1,280 bytes;
	// cameras send more.
	DefaultMaxBody = 8 << 10

	header   = 8          // preamble and length
	overhead = header + 4 // and CRC
	minBody  = 3          // codec id and the two counts

	// firstBuffer takes the largest frame that trackers document. It is what a connection costs; only
	// a bigger frame whose bytes have really arrived makes it grow.
	firstBuffer = 1536

	keepAlive = 0xFF
)

// Frame is one frame whose length and CRC are right. Its slices are views into the Reader's buffer
// and valid until the Reader's next method call.
type Frame struct {
	Codec Codec
	// number of records that the device says it sent: what to acknowledge; of messages if
	// Codec.IsCommand
	Count byte
	Body  []byte // codec id to second count: what Batch.Decode or DecodeMessages takes
	Raw   []byte // all of it, preamble to CRC: what a dead letter keeps
}

// Reader reads one device's byte stream: first [Reader.IMEI], then frames. It does not care how the
// bytes were cut into packets. It is not safe for concurrent use.
//
// An error of framing is final: the stream has no mark to find the next frame by, so every later
// call returns the same error. An error of the source is passed on, io.EOF at a frame boundary and
// io.ErrUnexpectedEOF within a frame, and loses nothing: after a timeout the same call may be made
// again.
//
// Two deadlines suit a device: a long one until a frame begins, and a short one until it is
// complete.
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
	lo, hi int   // buf[lo:hi] has arrived and is not consumed
	fault  error // the framing error that ended the stream
}

// NewReader returns a Reader of src that refuses frames that declare more than maxBody bytes; 0
// means DefaultMaxBody.
func NewReader(src io.Reader, maxBody int) *Reader {
	if maxBody <= 0 {
		maxBody = DefaultMaxBody
	}
	return &Reader{src: src, max: maxBody, buf: make([]byte, firstBuffer)}
}

// Reset makes the Reader read src from its beginning, keeping the buffer.
func (r *Reader) Reset(src io.Reader) {
	r.src, r.lo, r.hi, r.fault = src, 0, 0, nil
}

// Buffered is the number of bytes that were read and belong to no frame returned yet.
func (r *Reader) Buffered() int { return r.hi - r.lo }

// Await waits for a sign of life at a frame boundary. It returns true when a frame has begun, of
// which Next then reads the rest, and false when only keep-alive bytes came. What is buffered
// counts: it does not read if a frame has begun already.
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

// Next reads one frame, skipping keep-alive bytes before it. It returns ErrPreamble, ErrTooLong or
// ErrTooShort as soon as the bytes say so, without reading on, and ErrCRC after the whole frame.
func (r *Reader) Next() (Frame, error) {
	for started := false; !started; {
		var err error
		if started, err = r.Await(); err != nil {
			return Frame{}, err
		}
	}
	// One wrong byte is enough: whoever speaks HTTP here need not be waited for.
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
	// All 32 bits are compared: a frame with anything in the upper half is not what the device
	// computed.
	if says, is := binary.BigEndian.Uint32(raw[size-4:]), CRC(body); says != uint32(is) {
		return Frame{}, r.fail(ErrCRC, "frame says %08x, computed %04x", says, is)
	}
	r.lo += size
	return Frame{Codec: Codec(body[0]), Count: body[1], Body: body, Raw: raw}, nil
}

// fail ends the stream.
func (r *Reader) fail(sentinel error, format string, args ...any) error {
	r.fault = fmt.Errorf("%w: %s", sentinel, fmt.Sprintf(format, args...))
	return r.fault
}

// have reads until n bytes are buffered. n is at most max + overhead, so that room can always be
// made.
func (r *Reader) have(n int) error {
	for idle := 0; r.hi-r.lo < n; {
		r.makeRoom()
		m, err := r.src.Read(r.buf[r.hi:])
		r.hi += m
		switch {
		case m > 0: // an error that came along comes again
			idle = 0
		case err == io.EOF && r.hi > r.lo:
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		default:
			if idle++; idle == 100 { // as many as bufio bears
				return io.ErrNoProgress
			}
		}
	}
	return nil
}

// makeRoom leaves at least one byte free at the end of the buffer. It grows only when the buffer is
// full of one frame, by doubling: a declared length costs nothing until its bytes arrive.
func (r *Reader) makeRoom() {
	if r.lo == r.hi {
		r.lo, r.hi = 0, 0
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
