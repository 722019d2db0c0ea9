package teltonika

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
)

// NewElements returns ErrEncode for an unknown Size, a Value or Bytes that do not fit it, or more
// than 65,535 elements.
func NewElements(list ...Element) (Elements, error) {
	if len(list) > math.MaxUint16 {
		return Elements{}, fmt.Errorf("%w: %d elements in a record", ErrEncode, len(list))
	}
	l := layoutOf(Codec8E)
	l.group16 = slices.ContainsFunc(list, func(e Element) bool { return e.Size == 16 })
	wire, n, err := appendGroups(nil, slices.Values(list), l)
	if err != nil {
		return Elements{}, err
	}
	if n != len(list) {
		return Elements{}, fmt.Errorf("%w: %d elements of no known size", ErrEncode, len(list)-n)
	}
	return Elements{wire: wire, layout: l, n: uint16(n)}, nil
}

// AppendFrame appends a frame of codec 8, 8E or 16, preamble to CRC, of any size.
//
// It returns ErrUnknownCodec for other codecs, and ErrEncode if the codec cannot carry a record
// (ids above 255 or variable length in codec 8, a generation type outside codec 16) or if there are
// more than 255. With an error dst is returned unchanged.
func AppendFrame(dst []byte, c Codec, records ...Record) ([]byte, error) {
	start := len(dst)
	out, err := AppendBody(append(dst, make([]byte, header)...), c, records...)
	if err != nil {
		return dst, err
	}
	return seal(out, start), nil
}

// AppendEnvelope appends a frame around any body, even an invalid one.
func AppendEnvelope(dst, body []byte) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, header)...)
	return seal(append(dst, body...), start)
}

func seal(dst []byte, start int) []byte {
	body := dst[start+header:]
	binary.BigEndian.PutUint32(dst[start+4:], uint32(len(body)))
	return binary.BigEndian.AppendUint32(dst, uint32(CRC(body)))
}

// AppendBody appends a frame's body, with the errors of [AppendFrame].
//
// If a record has a 16-byte element, or came from a frame with that group, all records get the
// group: a decoded body encodes to the same bytes.
func AppendBody(dst []byte, c Codec, records ...Record) ([]byte, error) {
	if !c.HasRecords() {
		return dst, fmt.Errorf("%w %v", ErrUnknownCodec, c)
	}
	if len(records) > math.MaxUint8 {
		return dst, fmt.Errorf("%w: %d records in a frame", ErrEncode, len(records))
	}
	l := layoutOf(c)
	l.group16 = slices.ContainsFunc(records, func(r Record) bool { return r.IO.layout.group16 })
	out := append(dst, byte(c), byte(len(records)))
	for i := range records {
		var err error
		if out, err = appendRecord(out, &records[i], l); err != nil {
			return dst, fmt.Errorf("codec %v, record %d: %w", c, i, err)
		}
	}
	return append(out, byte(len(records))), nil
}

// AppendAck appends the answer to a frame: the number of records taken over.
func AppendAck(dst []byte, records int) []byte {
	return binary.BigEndian.AppendUint32(dst, uint32(records))
}

func appendRecord(dst []byte, r *Record, l layout) ([]byte, error) {
	dst = binary.BigEndian.AppendUint64(dst, r.Timestamp)
	dst = append(dst, r.Priority)
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Longitude))
	dst = binary.BigEndian.AppendUint32(dst, uint32(r.Latitude))
	dst = binary.BigEndian.AppendUint16(dst, uint16(r.Altitude))
	dst = binary.BigEndian.AppendUint16(dst, r.Angle)
	dst = append(dst, r.Satellites)
	dst = binary.BigEndian.AppendUint16(dst, r.Speed)
	dst, err := appendNumber(dst, int(r.Event), l.wideIDs, "event id")
	if err != nil {
		return dst, err
	}
	if l.generation {
		dst = append(dst, r.Generation)
	} else if r.Generation != 0 {
		return dst, fmt.Errorf("%w: a generation type is for codec 16 only", ErrEncode)
	}
	if dst, err = appendNumber(dst, r.IO.Len(), l.wideCounts, "number of elements"); err != nil {
		return dst, err
	}
	dst, n, err := appendGroups(dst, r.IO.All(), l)
	if err == nil && n != r.IO.Len() {
		err = fmt.Errorf("%w: elements of variable length are for codec 8E only", ErrEncode)
	}
	return dst, err
}

func appendGroups(dst []byte, elements iter.Seq[Element], l layout) (out []byte, total int, err error) {
	for _, size := range groupSizes {
		if !l.hasGroup(size) {
			continue
		}
		n := 0
		for e := range elements {
			if int(e.Size) == size {
				n++
			}
		}
		if dst, err = appendNumber(dst, n, l.wideCounts, "number of elements"); err != nil {
			return dst, 0, err
		}
		for e := range elements {
			if int(e.Size) != size {
				continue
			}
			if dst, err = appendElement(dst, e, l); err != nil {
				return dst, 0, err
			}
		}
		total += n
	}
	return dst, total, nil
}

func appendElement(dst []byte, e Element, l layout) ([]byte, error) {
	dst, err := appendNumber(dst, int(e.ID), l.wideIDs, "element id")
	switch {
	case err != nil:
		return dst, err
	case e.Size == SizeNX:
		dst, err = appendNumber(dst, len(e.Bytes), true, "length of an element")
		return append(dst, e.Bytes...), err
	case e.Size == 16 && len(e.Bytes) != 16:
		return dst, fmt.Errorf("%w: element %d has %d bytes, not 16", ErrEncode, e.ID, len(e.Bytes))
	case e.Size == 16:
		return append(dst, e.Bytes...), nil
	case e.Size < 8 && e.Value>>(8*e.Size) != 0:
		return dst, fmt.Errorf("%w: element %d: %d needs more than %d bytes", ErrEncode, e.ID, e.Value, e.Size)
	}
	for shift := 8 * (int(e.Size) - 1); shift >= 0; shift -= 8 {
		dst = append(dst, byte(e.Value>>shift))
	}
	return dst, nil
}

func appendNumber(dst []byte, n int, wide bool, what string) ([]byte, error) {
	switch {
	case wide && n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(dst, uint16(n)), nil
	case !wide && n <= math.MaxUint8:
		return append(dst, byte(n)), nil
	}
	return dst, fmt.Errorf("%w: %s %d is too large", ErrEncode, what, n)
}
