package teltonika

import (
	"encoding/binary"
	"iter"
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
	return func(yield func(Element) bool) { s.each(yield) }
}

func (s Elements) each(yield func(Element) bool) {
	p := s.wire
	for _, size := range groupSizes {
		if !s.layout.hasGroup(size) {
			continue
		}
		n, rest, ok := take(p, s.layout.wideCounts)
		if !ok {
			return
		}
		p = rest
		for range n {
			e := Element{Size: byte(size)}
			if e.ID, p, ok = take(p, s.layout.wideIDs); !ok {
				return
			}
			length := size
			if size == SizeNX {
				var declared uint16
				if declared, p, ok = take(p, true); !ok {
					return
				}
				length = int(declared)
			}
			if len(p) < length {
				return
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
				return
			}
		}
	}
}

func (l layout) measure(p []byte) (used, elements int, ok bool) {
	whole := len(p)
	idWidth := 1
	if l.wideIDs {
		idWidth = 2
	}
	var n uint16
	for _, size := range groupSizes[:5] {
		if size == 16 && !l.group16 {
			break
		}
		if n, p, ok = take(p, l.wideCounts); !ok {
			return 0, 0, false
		}
		need := int(n) * (idWidth + size)
		if need > len(p) {
			return 0, 0, false
		}
		p, elements = p[need:], elements+int(n)
	}
	if l.groupNX {
		if n, p, ok = take(p, true); !ok {
			return 0, 0, false
		}
		elements += int(n)
		for range n {
			if len(p) < 4 {
				return 0, 0, false
			}
			need := 4 + int(binary.BigEndian.Uint16(p[2:]))
			if need > len(p) {
				return 0, 0, false
			}
			p = p[need:]
		}
	}
	return whole - len(p), elements, true
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
