package teltonika

import (
	"encoding/binary"
	"fmt"
)

// fixedPart is the size of a record before its IO section.
const fixedPart = 24

// Batch holds the decoded records of one frame. Its zero value is ready; using one again keeps its
// memory, so that decoding allocates nothing once it has seen its largest frame.
type Batch struct {
	Codec   Codec
	Records []Record // views into the body that was decoded; valid as long as it is
}

// Decode decodes a frame's body, codec id to second count, of codec 8, 8E or 16. The records must
// fill the body exactly and every record must have as many elements as it says, else the frame's
// contents cannot be trusted.
//
// A body that does not fit its codec is tried once more with a group of 16-byte values behind the
// 8-byte group of every record: certain firmwares send it, nothing announces it, and only the count
// of bytes tells. The documented form is tried first, so no frame that follows the documents is
// ever read in the other way.
//
// Errors are ErrUnknownCodec (also for command codecs), ErrCount and ErrMalformed; then the Batch
// has no records. On ErrCount and ErrMalformed Codec is set.
func (b *Batch) Decode(body []byte) error {
	b.Codec, b.Records = 0, b.Records[:0]
	if len(body) < minBody {
		return fmt.Errorf("%w: a body of %d bytes", ErrMalformed, len(body))
	}
	codec := Codec(body[0])
	l, ok := layoutOf(codec)
	if !ok {
		return fmt.Errorf("%w %v", ErrUnknownCodec, codec)
	}
	b.Codec = codec
	before, after := body[1], body[len(body)-1]
	if before != after {
		return fmt.Errorf("%w: %d before, %d after", ErrCount, before, after)
	}
	data := body[2 : len(body)-1]
	why := b.decode(data, int(before), l)
	if why == "" {
		return nil
	}
	at := len(b.Records)
	if b.decode(data, int(before), l|group16) == "" {
		return nil
	}
	b.Records = b.Records[:0]
	return fmt.Errorf("%w: codec %v, %d of %d records, then %s", ErrMalformed, codec, at, before, why)
}

// decode appends n records of one layout. It returns what is wrong in words, not an error, since a
// frame with the 16-byte group fails once before it succeeds, and that must not allocate.
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
		if r.Event, p, ok = take(p[fixedPart:], l.has(wideIDs)); !ok {
			return "too few bytes for the event"
		}
		if l.has(generation) {
			if len(p) == 0 {
				return "too few bytes for the generation type"
			}
			r.Generation, p = p[0], p[1:]
		}
		if total, p, ok = take(p, l.has(wideCounts)); !ok {
			return "too few bytes for the number of elements"
		}
		used, elements, ok := l.measure(p)
		if !ok {
			return "elements that reach beyond the body"
		}
		if elements != int(total) {
			return "another number of elements than it says"
		}
		r.IO = Elements{wire: p[:used:used], layout: l, n: total}
		p = p[used:]
		// Grown by what was decoded, not to n: a count costs nothing until its records are there.
		b.Records = append(b.Records, r)
	}
	if len(p) != 0 {
		return "bytes left over"
	}
	return ""
}
