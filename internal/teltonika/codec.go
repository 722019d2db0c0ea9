package teltonika

import (
	"errors"
	"fmt"
	"strconv"
)

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
