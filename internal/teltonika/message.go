package teltonika

import (
	"encoding/binary"
	"fmt"
	"iter"
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
