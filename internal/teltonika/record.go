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
