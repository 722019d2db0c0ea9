package teltonika

import (
	"encoding/binary"
	"iter"
	"slices"
)

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
