package teltonika

import (
	"encoding/binary"
	"fmt"
)

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
