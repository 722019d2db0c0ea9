package teltonika

import (
	"encoding/hex"
	"slices"
	"strconv"
)

// AppendDegrees appends 1e-7 degrees as decimal degrees with exactly seven decimals: -1 is
// "-0.0000001".
func AppendDegrees(dst []byte, e7 int32) []byte {
	v := int64(e7)
	if v < 0 {
		dst, v = append(dst, '-'), -v
	}
	dst = strconv.AppendInt(dst, v/1e7, 10)
	// The leading 1 keeps the fraction's zeros. The point replaces it.
	at := len(dst)
	dst = strconv.AppendInt(dst, 1e7+v%1e7, 10)
	dst[at] = '.'
	return dst
}

// maxSafe: from there on a reader that parses JSON numbers as doubles gets another number.
const maxSafe = 1 << 53

// fewElements is above the elements of records seen in the field.
const fewElements = 128

// AppendJSON appends one JSON object in wire order, keyed by id in decimal. Values are unsigned
// integers, from 2^53 up strings of digits; those of 16 bytes or of variable length are strings of
// lower-case hex. Of an id that occurs twice only the first is written: every JSON parser reads the
// same.
func (s Elements) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	for e := range s.distinct {
		dst = e.appendJSON(dst)
	}
	return closeObject(dst)
}

// AppendWidths appends one JSON object with the ids that AppendJSON writes as integers, by their
// width on the wire in bytes: {"1":[239,21],"4":[72]}. A reader needs it to extend a sign. Other
// ids have values in hex.
func (s Elements) AppendWidths(dst []byte) []byte {
	dst = append(dst, '{')
	width := byte(0)
	for e := range s.distinct {
		if e.Size == SizeNX || e.Size == 16 {
			break
		}
		if e.Size != width {
			dst = closeList(dst, width)
			width = e.Size
			dst = append(dst, '"', '0'+width, '"', ':', '[')
		}
		dst = strconv.AppendUint(dst, uint64(e.ID), 10)
		dst = append(dst, ',')
	}
	return closeObject(closeList(dst, width))
}

// closeList takes width 0 if there is no list yet.
func closeList(dst []byte, width byte) []byte {
	if width == 0 {
		return dst
	}
	dst[len(dst)-1] = ']'
	return append(dst, ',')
}

// distinct yields the first element of each id. A hostile frame of 32 KiB has ten thousand: to
// compare every pair would cost tens of milliseconds.
func (s Elements) distinct(yield func(Element) bool) {
	var few [fewElements]uint16
	var many map[uint16]bool
	if s.Len() > fewElements {
		many = make(map[uint16]bool)
	}
	n := 0
	for e := range s.All() {
		switch {
		case many[e.ID], slices.Contains(few[:n], e.ID):
			continue
		case many != nil:
			many[e.ID] = true
		default:
			few[n] = e.ID
			n++
		}
		if !yield(e) {
			return
		}
	}
}

func closeObject(dst []byte) []byte {
	if last := len(dst) - 1; dst[last] == ',' {
		dst[last] = '}'
		return dst
	}
	return append(dst, '}')
}

func (e Element) appendJSON(dst []byte) []byte {
	dst = append(dst, '"')
	dst = strconv.AppendUint(dst, uint64(e.ID), 10)
	dst = append(dst, '"', ':')
	switch {
	case e.Size == SizeNX || e.Size == 16:
		dst = append(dst, '"')
		dst = hex.AppendEncode(dst, e.Bytes)
		dst = append(dst, '"')
	case e.Value >= maxSafe:
		dst = append(dst, '"')
		dst = strconv.AppendUint(dst, e.Value, 10)
		dst = append(dst, '"')
	default:
		dst = strconv.AppendUint(dst, e.Value, 10)
	}
	return append(dst, ',')
}
