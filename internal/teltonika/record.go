package teltonika

import (
	"encoding/binary"
	"iter"
)

// Record is one position report with the device's inputs at that time. Without a satellite fix a
// device repeats its last position with angle, satellites and speed 0.
type Record struct {
	Timestamp  uint64 // Unix milliseconds
	Longitude  int32  // in 1e-7 degrees, east positive
	Latitude   int32  // in 1e-7 degrees, north positive
	Altitude   int16  // metres above sea level
	Angle      uint16 // degrees from north, clockwise
	Speed      uint16 // km/h
	Event      uint16 // id of the element that caused the record, 0 if none did
	Priority   byte   // 0 low, 1 high, 2 panic; others are passed on
	Satellites byte
	Generation byte // what made the device generate the record; codec 16 only, else 0
	IO         Elements
}

// Element is one input, output or sensor value. What an id means, and whether its value is signed,
// depends on the device's model; the wire does not say.
type Element struct {
	ID uint16
	// bytes of the value on the wire: 1, 2, 4 or 8 (in Value), 16 (in Bytes), or SizeNX (in Bytes)
	Size  byte
	Value uint64 // unsigned
	Bytes []byte
}

// SizeNX is the Size of an element of variable length, which may be zero bytes.
const SizeNX = 0

// groupSizes lists the groups of fixed size in the order of the wire.
var groupSizes = [...]int{1, 2, 4, 8, 16}

// Elements is the IO section of a record: a view of checked bytes, decoded while it is walked, so
// that a record costs the same however many elements it has. The zero value has none. One that was
// decoded is valid as long as the body it came from.
type Elements struct {
	wire   []byte // the groups, without event and total
	layout layout
	n      uint16
}

// Len returns the number of elements.
func (s Elements) Len() int { return int(s.n) }

// All walks the elements in the order of the wire: by size, variable length last. Element.Bytes is
// a view.
func (s Elements) All() iter.Seq[Element] {
	return func(yield func(Element) bool) { s.each(yield) }
}

// each stops early, rather than panic, where the bytes have changed under it because a view was
// used too long.
func (s Elements) each(yield func(Element) bool) {
	p := s.wire
	for _, size := range groupSizes {
		if size == 16 && !s.layout.has(group16) {
			break
		}
		n, rest, ok := take(p, s.layout.has(wideCounts))
		if !ok {
			return
		}
		p = rest
		for range n {
			id, rest, ok := take(p, s.layout.has(wideIDs))
			if !ok || len(rest) < size {
				return
			}
			e := Element{ID: id, Size: byte(size)}
			switch size {
			case 1:
				e.Value = uint64(rest[0])
			case 2:
				e.Value = uint64(binary.BigEndian.Uint16(rest))
			case 4:
				e.Value = uint64(binary.BigEndian.Uint32(rest))
			case 8:
				e.Value = binary.BigEndian.Uint64(rest)
			default:
				e.Bytes = rest[:size:size]
			}
			if p = rest[size:]; !yield(e) {
				return
			}
		}
	}
	if !s.layout.has(groupNX) {
		return
	}
	n, p, _ := take(p, true) // n is 0 where there is none
	for range n {
		var id, size uint16
		var ok bool
		if id, p, ok = take(p, true); !ok {
			return
		}
		if size, p, ok = take(p, true); !ok || int(size) > len(p) {
			return
		}
		e := Element{ID: id, Size: SizeNX, Bytes: p[:size:size]}
		if p = p[size:]; !yield(e) {
			return
		}
	}
}

// measure returns how many bytes of p an IO section of this layout takes and how many elements it
// has, and false if it does not fit in p. Nothing but p's own length bounds it, and it allocates
// nothing.
func (l layout) measure(p []byte) (used, elements int, ok bool) {
	whole := len(p)
	var n uint16
	for _, size := range groupSizes {
		if size == 16 && !l.has(group16) {
			break
		}
		if n, p, ok = take(p, l.has(wideCounts)); !ok {
			return 0, 0, false
		}
		need := int(n) * (l.idWidth() + size)
		if need > len(p) {
			return 0, 0, false
		}
		p, elements = p[need:], elements+int(n)
	}
	if l.has(groupNX) {
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

// take reads one number, of two bytes if wide, else one.
func take(p []byte, wide bool) (n uint16, rest []byte, ok bool) {
	switch {
	case wide && len(p) >= 2:
		return binary.BigEndian.Uint16(p), p[2:], true
	case !wide && len(p) >= 1:
		return uint16(p[0]), p[1:], true
	}
	return 0, nil, false
}
