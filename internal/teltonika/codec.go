package teltonika

import (
	"errors"
	"strconv"
)

// Codec is the id in the first byte of a frame's body.
type Codec byte

// Codecs 8, 8E and 16 carry records ([Batch.Decode]); 12 to 15 carry commands and their answers
// ([DecodeMessages]).
const (
	Codec8  Codec = 0x08
	Codec8E Codec = 0x8E
	Codec12 Codec = 0x0C
	Codec13 Codec = 0x0D
	Codec14 Codec = 0x0E
	Codec15 Codec = 0x0F
	Codec16 Codec = 0x10
)

// String returns the codec's name as the vendor writes it ("8", "8E", "16"), or its id ("0x99") if
// it is none of ours.
func (c Codec) String() string {
	switch c {
	case Codec8:
		return "8"
	case Codec8E:
		return "8E"
	case Codec12:
		return "12"
	case Codec13:
		return "13"
	case Codec14:
		return "14"
	case Codec15:
		return "15"
	case Codec16:
		return "16"
	}
	return "0x" + strconv.FormatUint(uint64(c)|0x100, 16)[1:]
}

// IsCommand reports whether the codec carries commands or their answers. A server acknowledges none
// of them.
func (c Codec) IsCommand() bool { return c >= Codec12 && c <= Codec15 }

// Errors of this package. Returned errors wrap one of them with detail; the package comment says
// what each obliges to.
var (
	// ErrHandshake: what came is not 000F and 15 ASCII digits.
	ErrHandshake = errors.New("teltonika: not an IMEI handshake")
	// ErrPreamble: a frame does not begin with four zero bytes.
	ErrPreamble = errors.New("teltonika: no frame preamble")
	// ErrTooLong: a frame declares more bytes than the cap.
	ErrTooLong = errors.New("teltonika: frame too long")
	// ErrTooShort: a frame declares fewer bytes than codec id and the two counts need.
	ErrTooShort = errors.New("teltonika: frame too short")
	// ErrCRC: the checksum does not match, so that even the length may be what is broken.
	ErrCRC = errors.New("teltonika: wrong CRC")
	// ErrCount: the count before the records or messages and the one after them differ.
	ErrCount = errors.New("teltonika: counts differ")
	// ErrUnknownCodec: the codec carries nothing that was asked for: no records for Batch, no messages
	// for DecodeMessages.
	ErrUnknownCodec = errors.New("teltonika: unknown codec")
	// ErrMalformed: records or messages do not fill the body exactly, though its counts agree.
	ErrMalformed = errors.New("teltonika: malformed body")
	// ErrDatagram: a UDP packet is not a datagram of a device, nor the answer to one.
	ErrDatagram = errors.New("teltonika: not a datagram")
	// ErrEncode: a value does not fit in the codec that was asked for.
	ErrEncode = errors.New("teltonika: cannot encode")
)

// layout says how wide the numbers of a codec's IO section are, and which groups it has beside the
// four regular ones.
type layout uint8

const (
	wideIDs    layout = 1 << iota // event and ids are u16, else u8
	wideCounts                    // total and counts are u16, else u8
	generation                    // a generation type follows the event
	group16                       // a group of 16-byte values follows the 8-byte group
	groupNX                       // a group of values of any length comes last
)

// layoutOf returns the layout that the vendor documents for a codec, and false if it carries no
// records.
func layoutOf(c Codec) (layout, bool) {
	switch c {
	case Codec8:
		return 0, true
	case Codec8E:
		return wideIDs | wideCounts | groupNX, true
	case Codec16:
		return wideIDs | generation, true
	}
	return 0, false
}

// has reports whether all of the given flags are set.
func (l layout) has(f layout) bool { return l&f == f }

// idWidth returns the bytes that an id takes.
func (l layout) idWidth() int {
	if l.has(wideIDs) {
		return 2
	}
	return 1
}
