package teltonika

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
)

// Record is a position report. Without a satellite fix a device repeats its last position with
// angle, satellites and speed 0.
type Record struct {
	Timestamp  uint64 // Unix milliseconds
	Longitude  int32  // 1e-7 degrees, east positive
	Latitude   int32  // 1e-7 degrees, north positive
	Altitude   int16  // metres above sea level
	Angle      uint16 // degrees from north, clockwise
	Speed      uint16 // km/h
	Event      uint16 // id of the element that caused the record, 0 if none did
	Priority   byte   // 0 low, 1 high, 2 panic; others are passed on
	Satellites byte
	Generation byte // codec 16 only: the device's reason for the record
	IO         Elements
}

// Element is an input, output or sensor value. Its meaning and sign depend on the device's model.
type Element struct {
	ID    uint16
	Size  byte   // on the wire: 1, 2, 4, 8, 16 bytes, or SizeNX
	Value uint64 // for sizes 1 to 8, unsigned
	Bytes []byte // for size 16 and SizeNX
}

// SizeNX is of variable length, which may be zero bytes.
const SizeNX = 0

// groupSizes is in wire order: see layout.hasGroup.
var groupSizes = [...]int{1, 2, 4, 8, 16, SizeNX}

// Elements is a checked view of an IO section, valid as long as the body. The walk decodes them: a
// record costs the same for any number.
type Elements struct {
	wire   []byte // the groups, without event and total
	layout layout
	n      uint16
}

// Len returns the number of elements.
func (s Elements) Len() int { return int(s.n) }

// All walks in wire order: by size, variable length last. It stops early, without a panic, if the
// view's bytes have changed.
func (s Elements) All() iter.Seq[Element] {
	return func(yield func(Element) bool) { s.layout.walk(s.wire, yield) }
}

// walk returns what is behind the groups. ok is false if they reach beyond p, or yield ended it.
func (l layout) walk(p []byte, yield func(Element) bool) (rest []byte, ok bool) {
	for _, size := range groupSizes {
		if !l.hasGroup(size) {
			continue
		}
		var n uint16
		if n, p, ok = take(p, l.wideCounts); !ok {
			return nil, false
		}
		for range n {
			e := Element{Size: byte(size)}
			if e.ID, p, ok = take(p, l.wideIDs); !ok {
				return nil, false
			}
			length := uint16(size)
			if size == SizeNX {
				if length, p, ok = take(p, true); !ok {
					return nil, false
				}
			}
			if len(p) < int(length) {
				return nil, false
			}
			switch size {
			case 1:
				e.Value = uint64(p[0])
			case 2:
				e.Value = uint64(binary.BigEndian.Uint16(p))
			case 4:
				e.Value = uint64(binary.BigEndian.Uint32(p))
			case 8:
				e.Value = binary.BigEndian.Uint64(p)
			default:
				e.Bytes = p[:length:length]
			}
			if p = p[length:]; !yield(e) {
				return nil, false
			}
		}
	}
	return p, true
}

func take(p []byte, wide bool) (n uint16, rest []byte, ok bool) {
	switch {
	case wide && len(p) >= 2:
		return binary.BigEndian.Uint16(p), p[2:], true
	case !wide && len(p) >= 1:
		return uint16(p[0]), p[1:], true
	}
	return 0, nil, false
}

// Codec is the id in the first byte of a frame's body.
type Codec byte

// Codecs 8, 8E and 16 carry records ([Batch.Decode]). Codecs 12 to 15 carry commands and their
// answers ([DecodeMessages]).
const (
	Codec8  Codec = 0x08
	Codec8E Codec = 0x8E
	Codec12 Codec = 0x0C
	Codec13 Codec = 0x0D
	Codec14 Codec = 0x0E
	Codec15 Codec = 0x0F
	Codec16 Codec = 0x10
)

// String returns the vendor's name ("8", "8E", "16"), or another codec's id ("0x99").
func (c Codec) String() string {
	switch {
	case c == Codec8E:
		return "8E"
	case c.HasRecords() || c.IsCommand():
		return strconv.Itoa(int(c))
	}
	return fmt.Sprintf("0x%02x", byte(c))
}

// HasRecords reports whether the codec carries records.
func (c Codec) HasRecords() bool { return c == Codec8 || c == Codec8E || c == Codec16 }

// IsCommand reports whether the codec carries commands or their answers.
func (c Codec) IsCommand() bool { return c >= Codec12 && c <= Codec15 }

// Returned errors wrap one of these: see the package comment.
var (
	ErrHandshake = errors.New("teltonika: not an IMEI handshake")
	ErrPreamble  = errors.New("teltonika: no frame preamble")
	// ErrTooLong: the declared length exceeds the cap.
	ErrTooLong = errors.New("teltonika: frame too long")
	// ErrTooShort: no room for codec id and two counts.
	ErrTooShort = errors.New("teltonika: frame too short")
	// ErrCRC: the length may be the broken part.
	ErrCRC = errors.New("teltonika: wrong CRC")
	// ErrCount: counts before and after differ.
	ErrCount        = errors.New("teltonika: counts differ")
	ErrUnknownCodec = errors.New("teltonika: unknown codec")
	// ErrMalformed: the body is not filled exactly.
	ErrMalformed = errors.New("teltonika: malformed body")
)

// layout describes a codec's IO section.
type layout struct {
	wideIDs    bool // event and ids are u16, else u8
	wideCounts bool // total and counts are u16, else u8
	generation bool // a generation type follows the event
	group16    bool // 16-byte values after the 8-byte group
	groupNX    bool // variable-length values come last; wideIDs and wideCounts are set
}

// layoutOf is as the vendor documents.
func layoutOf(c Codec) layout {
	return layout{
		wideIDs: c != Codec8, wideCounts: c == Codec8E, generation: c == Codec16, groupNX: c == Codec8E,
	}
}

func (l layout) hasGroup(size int) bool {
	switch size {
	case 16:
		return l.group16
	case SizeNX:
		return l.groupNX
	}
	return true
}

// openBody returns the announced count and the bytes between the counts.
func openBody(body []byte, known func(Codec) bool) (c Codec, n int, data []byte, err error) {
	if len(body) < minBody {
		return 0, 0, nil, fmt.Errorf("%w: a body of %d bytes", ErrMalformed, len(body))
	}
	if c = Codec(body[0]); !known(c) {
		return 0, 0, nil, fmt.Errorf("%w %v", ErrUnknownCodec, c)
	}
	last := len(body) - 1
	if before, after := body[1], body[last]; before != after {
		return c, 0, nil, fmt.Errorf("%w: %d before, %d after", ErrCount, before, after)
	}
	return c, int(body[1]), body[2:last:last], nil
}

// crcTable has the reflected polynomial 0xA001.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i)
		for range 8 {
			odd := crc & 1
			crc = crc>>1 ^ odd*0xA001
		}
		t[i] = crc
	}
	return t
}()

// CRC returns the CRC-16/ARC (vendor's name: CRC-16/IBM; initial value 0) of a frame's body.
func CRC(body []byte) uint16 {
	var crc uint16
	for _, b := range body {
		crc = crc>>8 ^ crcTable[byte(crc)^b]
	}
	return crc
}

const fixedPart = 24

// Batch holds a frame's decoded records. Reused, it keeps its memory, and decoding allocates
// nothing.
type Batch struct {
	Codec   Codec
	Records []Record // views into the decoded body
}

// Decode decodes a frame's body, codec id to second count, of codec 8, 8E or 16. The records must
// fill the body exactly, with the declared number of elements each: otherwise nothing in the frame
// can be trusted.
//
// A body that does not fit its codec is tried once more with a group of 16-byte values after the
// 8-byte group of every record. Some firmwares send that group, and only the number of bytes shows
// it. The documented form is tried first, so a documented frame is never misread.
//
// After ErrUnknownCodec (also for command codecs), ErrCount or ErrMalformed there are no records.
// Codec is 0 if it is unknown.
func (b *Batch) Decode(body []byte) error {
	b.Records = b.Records[:0]
	codec, n, data, err := openBody(body, Codec.HasRecords)
	if b.Codec = codec; err != nil {
		return err
	}
	l := layoutOf(codec)
	why := b.decode(data, n, l)
	if why == "" {
		return nil
	}
	at := len(b.Records)
	l.group16 = true
	if b.decode(data, n, l) == "" {
		return nil
	}
	b.Records = b.Records[:0]
	return fmt.Errorf("%w: codec %v, %d of %d records, then %s", ErrMalformed, codec, at, n, why)
}

// decode returns a fault as text: a frame with the 16-byte group fails once, and an error would
// allocate.
func (b *Batch) decode(p []byte, n int, l layout) (why string) {
	b.Records = b.Records[:0]
	for range n {
		if len(p) < fixedPart {
			return "too few bytes for a record"
		}
		r := Record{
			Timestamp:  binary.BigEndian.Uint64(p),
			Priority:   p[8],
			Longitude:  int32(binary.BigEndian.Uint32(p[9:])),
			Latitude:   int32(binary.BigEndian.Uint32(p[13:])),
			Altitude:   int16(binary.BigEndian.Uint16(p[17:])),
			Angle:      binary.BigEndian.Uint16(p[19:]),
			Satellites: p[21],
			Speed:      binary.BigEndian.Uint16(p[22:]),
		}
		var total uint16
		var ok bool
		if r.Event, p, ok = take(p[fixedPart:], l.wideIDs); !ok {
			return "too few bytes for the event"
		}
		if l.generation {
			if len(p) == 0 {
				return "too few bytes for the generation type"
			}
			r.Generation, p = p[0], p[1:]
		}
		if total, p, ok = take(p, l.wideCounts); !ok {
			return "too few bytes for the number of elements"
		}
		elements := 0
		rest, ok := l.walk(p, func(Element) bool { elements++; return true })
		if !ok {
			return "elements that reach beyond the body"
		}
		if elements != int(total) {
			return "another number of elements than it says"
		}
		used := len(p) - len(rest)
		r.IO = Elements{wire: p[:used:used], layout: l, n: total}
		p = rest
		b.Records = append(b.Records, r)
	}
	if len(p) != 0 {
		return "bytes left over"
	}
	return ""
}

// Encoding serves commands and simulated devices, and trusts its caller: of a number that the codec
// has no room for only the low bytes are written, and elements of a size that it does not have are
// left out.

// NewElements returns elements, at most 65,535, as codec 8E has them.
func NewElements(list ...Element) Elements {
	l := layoutOf(Codec8E)
	l.group16 = slices.ContainsFunc(list, func(e Element) bool { return e.Size == 16 })
	wire, n := appendGroups(nil, slices.Values(list), l)
	return Elements{wire: wire, layout: l, n: uint16(n)}
}

// AppendFrame appends a frame of codec 8, 8E or 16, preamble to CRC, with at most 255 records.
//
// If a record has a 16-byte element, or came from a frame with that group, all records get the
// group: a decoded body encodes to the same bytes.
func AppendFrame(dst []byte, c Codec, records ...Record) []byte {
	l := layoutOf(c)
	l.group16 = slices.ContainsFunc(records, func(r Record) bool { return r.IO.layout.group16 })
	body := []byte{byte(c), byte(len(records))}
	for i := range records {
		body = appendRecord(body, &records[i], l)
	}
	return AppendEnvelope(dst, append(body, byte(len(records))))
}

// AppendEnvelope appends a frame around any body, even an invalid one.
func AppendEnvelope(dst, body []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(body))) // preamble and length
	dst = append(dst, body...)
	return binary.BigEndian.AppendUint32(dst, uint32(CRC(body)))
}

// AppendAck appends the answer to a frame: the number of records taken over.
func AppendAck(dst []byte, records int) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(records))
}

func appendRecord(dst []byte, r *Record, l layout) []byte {
	dst = binary.BigEndian.AppendUint64(dst, r.Timestamp)
	dst = append(dst, r.Priority)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Longitude))
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Latitude))
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.Altitude))
	dst = binary.BigEndian.AppendUint16(dst, r.Angle)
	dst = append(dst, r.Satellites)
	dst = binary.BigEndian.AppendUint16(dst, r.Speed)
	dst = appendNumber(dst, int(r.Event), l.wideIDs)
	if l.generation {
		dst = append(dst, r.Generation)
	}
	groups, n := appendGroups(nil, r.IO.All(), l)
	return append(appendNumber(dst, n, l.wideCounts), groups...)
}

func appendGroups(dst []byte, elements iter.Seq[Element], l layout) (out []byte, total int) {
	for _, size := range groupSizes {
		if !l.hasGroup(size) {
			continue
		}
		n := 0
		var group []byte
		for e := range elements {
			if int(e.Size) == size {
				n++
				group = appendElement(group, e, l)
			}
		}
		dst = append(appendNumber(dst, n, l.wideCounts), group...)
		total += n
	}
	return dst, total
}

func appendElement(dst []byte, e Element, l layout) []byte {
	dst = appendNumber(dst, int(e.ID), l.wideIDs)
	switch e.Size {
	case SizeNX:
		return append(appendNumber(dst, len(e.Bytes), true), e.Bytes...)
	case 16:
		return append(dst, e.Bytes...)
	}
	value := binary.BigEndian.AppendUint64(nil, e.Value)
	return append(dst, value[8-e.Size:]...)
}

func appendNumber(dst []byte, n int, wide bool) []byte {
	if wide {
		return binary.BigEndian.AppendUint16(dst, uint16(n))
	}
	return append(dst, byte(n))
}
