package teltonika

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// MessageType may be any.
type MessageType byte

// The vendor documents these.
const (
	TypeCommand  MessageType = 0x05 // server to device; devices have sent it in codec 13
	TypeResponse MessageType = 0x06 // device to server
	TypeCamera   MessageType = 0x0D // codec 12, both ways, binary
	TypeNACK     MessageType = 0x11 // codec 14, device to server: not executed, another IMEI's
)

// Message is a command, an answer, or data from a device's serial port.
type Message struct {
	Type      MessageType
	Timestamp uint32 // Unix seconds; codecs 13 and 15 only
	IMEI      IMEI   // codecs 14 and 15 only
	Text      []byte // as received: not trimmed, possibly binary
}

// Messages is a checked view of a frame's messages, valid as long as the body. The walk decodes
// them: a frame costs the same for any number.
type Messages struct {
	Codec Codec
	wire  []byte // the messages, without the counts
	n     int
}

// DecodeMessages decodes a body of codec 12, 13, 14 or 15, which the messages must fill exactly. An
// IMEI must be a leading 0 and 15 digits.
//
// It returns ErrUnknownCodec (also for the codecs of records), ErrCount or ErrMalformed.
func DecodeMessages(body []byte) (Messages, error) {
	codec, n, data, err := openBody(body, Codec.IsCommand)
	if err != nil {
		return Messages{}, err
	}
	rest, why, i := data, "", 0
	for ; i < n && why == ""; i++ {
		_, rest, why = takeMessage(rest, codec)
	}
	if why == "" && len(rest) != 0 {
		why = "bytes left over"
	}
	if why != "" {
		return Messages{}, fmt.Errorf("%w: codec %v, message %d of %d: %s", ErrMalformed, codec, i, n, why)
	}
	return Messages{Codec: codec, wire: data, n: n}, nil
}

// Len is 1 in practice.
func (s Messages) Len() int { return s.n }

// All walks in wire order. It stops early, without a panic, if the view's bytes have changed.
func (s Messages) All() iter.Seq[Message] {
	return func(yield func(Message) bool) {
		p := s.wire
		for range s.n {
			m, rest, why := takeMessage(p, s.Codec)
			if p = rest; why != "" || !yield(m) {
				return
			}
		}
	}
}

func (c Codec) hasTimestamp() bool { return c == Codec13 || c == Codec15 }

func (c Codec) hasIMEI() bool { return c == Codec14 || c == Codec15 }

// takeMessage returns a fault as text, as Batch.decode does.
func takeMessage(p []byte, c Codec) (m Message, rest []byte, why string) {
	if len(p) < 5 {
		return Message{}, nil, "too few bytes for a type and a size"
	}
	m.Type = MessageType(p[0])
	size := binary.BigEndian.Uint32(p[1:])
	p = p[5:]
	if uint64(size) > uint64(len(p)) {
		return Message{}, nil, "a size that reaches beyond the body"
	}
	p, rest = p[:size:size], p[size:]
	// size includes timestamp and IMEI, and may be too small for them.
	if c.hasTimestamp() {
		if len(p) < 4 {
			return Message{}, nil, "a size too small for the timestamp"
		}
		m.Timestamp, p = binary.BigEndian.Uint32(p), p[4:]
	}
	if c.hasIMEI() {
		if len(p) < len(m.IMEI) {
			return Message{}, nil, "a size too small for the IMEI"
		}
		m.IMEI = IMEI(p[:len(m.IMEI)])
		if p = p[len(m.IMEI):]; !m.IMEI.valid() {
			return Message{}, nil, "an IMEI that is not a 0 and 15 digits"
		}
	}
	m.Text = p
	return m, rest, ""
}

// AppendMessages appends a frame of codec 12, 13, 14 or 15, preamble to CRC, with at most 255
// messages. Devices expect one. A timestamp or IMEI that the codec does not have is left out.
func AppendMessages(dst []byte, c Codec, messages ...Message) []byte {
	body := []byte{byte(c), byte(len(messages))}
	for _, m := range messages {
		var inside []byte
		if c.hasTimestamp() {
			inside = binary.BigEndian.AppendUint32(inside, m.Timestamp)
		}
		if c.hasIMEI() {
			inside = append(inside, m.IMEI[:]...)
		}
		inside = append(inside, m.Text...)
		body = binary.BigEndian.AppendUint32(append(body, byte(m.Type)), uint32(len(inside)))
		body = append(body, inside...)
	}
	return AppendEnvelope(dst, append(body, byte(len(messages))))
}

// The server's answers to a handshake.
const (
	Refuse byte = 0x00
	Accept byte = 0x01
)

const imeiDigits = 15

// IMEI reads the handshake, skipping keep-alive bytes before it. It returns ErrHandshake at the
// first wrong byte, and so does not wait for a port scanner whose first two bytes announce 18,245
// more. One read deadline bounds it.
func (r *Reader) IMEI() (string, error) {
	if err := r.begin(); err != nil {
		return "", err
	}
	for i := range 2 + imeiDigits {
		if err := r.have(i + 1); err != nil {
			return "", err
		}
		b := r.buf[r.lo+i]
		ok := b >= '0' && b <= '9'
		switch i {
		case 0:
			ok = b == 0
		case 1:
			ok = b == imeiDigits
		}
		if !ok {
			return "", r.fail(ErrHandshake, "byte %d is 0x%02x", i, b)
		}
	}
	imei := string(r.buf[r.lo+2 : r.lo+2+imeiDigits])
	r.lo += 2 + imeiDigits
	return imei, nil
}

// AppendIMEI appends a device's handshake, or returns an error if imei is not 15 digits.
func AppendIMEI(dst []byte, imei string) ([]byte, error) {
	if _, err := ParseIMEI(imei); err != nil {
		return dst, err
	}
	return append(append(dst, 0, imeiDigits), imei...), nil
}

// LuhnValid checks an IMEI's last digit. Some real devices fail this: count them, do not refuse
// them.
func LuhnValid(imei string) bool {
	sum := 0
	for i := range len(imei) {
		d := int(imei[i]) - '0'
		if d < 0 || d > 9 {
			return false
		}
		// From the right, every second digit counts double; of a two-digit double the sum counts.
		if (len(imei)-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return len(imei) > 0 && sum%10 == 0
}

// IMEI has a leading 0 and 15 digits, two per byte. Zero is 15 zeros, which no device has.
type IMEI [8]byte

// ParseIMEI returns an error for anything but 15 ASCII digits.
func ParseIMEI(s string) (m IMEI, err error) {
	if len(s) != imeiDigits || strings.Trim(s, "0123456789") != "" {
		return IMEI{}, fmt.Errorf("teltonika: IMEI %q is not %d digits", s, imeiDigits)
	}
	for i := range s {
		m[(i+1)/2] |= (s[i] - '0') << (4 * (i % 2))
	}
	return m, nil
}

// String returns digits, unless the value is from outside this package.
func (m IMEI) String() string { return hex.EncodeToString(m[:])[1:] }

func (m IMEI) valid() bool {
	for _, b := range m {
		if b>>4 > 9 || b&0x0F > 9 {
			return false
		}
	}
	return m[0]>>4 == 0
}

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
