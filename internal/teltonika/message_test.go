package teltonika

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var commandCodecs = []Codec{Codec12, Codec13, Codec14, Codec15}

const someIMEI = "352093081452251"

func mustIMEI(t testing.TB, s string) IMEI {
	m, err := ParseIMEI(s)
	require.NoError(t, err)
	return m
}

// bodyOf returns the body of the frame that the messages encode to.
func bodyOf(t testing.TB, c Codec, messages ...Message) []byte {
	frame, err := AppendMessages(nil, c, messages...)
	require.NoError(t, err)
	return frame[header : len(frame)-4]
}

func requireMessagesError(t testing.TB, body []byte, want error) {
	t.Helper()
	s, err := DecodeMessages(body)
	require.ErrorIs(t, err, want)
	require.Equal(t, Messages{}, s)
	require.Empty(t, slices.Collect(s.All()))
}

// randomMessages returns n messages that the codec can carry.
func randomMessages(rnd *rand.Rand, c Codec, n int) []Message {
	messages := make([]Message, n)
	for i := range messages {
		m := &messages[i]
		m.Type, m.Text = MessageType(rnd.Uint32()), make([]byte, rnd.IntN(60))
		for j := range m.Text {
			m.Text[j] = byte(rnd.Uint32())
		}
		if c.hasTimestamp() {
			m.Timestamp = rnd.Uint32()
		}
		if c.hasIMEI() {
			for j := range m.IMEI {
				m.IMEI[j] = byte(rnd.IntN(10)<<4 | rnd.IntN(10))
			}
			m.IMEI[0] &= 0x0F
		}
	}
	return messages
}

func TestDecodeMessagesRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sentence string
		body     string
		want     error
	}{
		{"nothing", "", ErrMalformed},
		{"a codec and one count", "\x0c\x00", ErrMalformed},
		{"codec 8, which carries no messages", "\x08\x00\x00", ErrUnknownCodec},
		{"codec 16, which carries no messages", "\x10\x00\x00", ErrUnknownCodec},
		{"the codec before 12", "\x0b\x00\x00", ErrUnknownCodec},
		{"counts that differ", "\x0c\x01\x05\x00\x00\x00\x01x\x02", ErrCount},
		{"one message fewer than announced", "\x0c\x02\x05\x00\x00\x00\x01x\x02", ErrMalformed},
		{"one message more than announced", "\x0c\x01\x05\x00\x00\x00\x01x\x05\x00\x00\x00\x01x\x01", ErrMalformed},
		{"no messages and something behind", "\x0c\x00\x05\x00", ErrMalformed},
		{"a byte left over", "\x0c\x01\x05\x00\x00\x00\x01xx\x01", ErrMalformed},
		{"a size one beyond the body", "\x0c\x01\x05\x00\x00\x00\x02x\x01", ErrMalformed},
		{"a size of 4 GiB - 1", "\x0c\x01\x05\xff\xff\xff\xffx\x01", ErrMalformed},
		{"a size of 2 GiB", "\x0c\x01\x05\x80\x00\x00\x00x\x01", ErrMalformed},
		{"a size of three bytes", "\x0c\x01\x05\x00\x00\x00\x01", ErrMalformed},
		{"255 messages of no bytes", "\x0c\xff\xff", ErrMalformed},
		{"codec 13 without room for the timestamp", "\x0d\x01\x05\x00\x00\x00\x03xxx\x01", ErrMalformed},
		{"codec 14 without room for the IMEI", "\x0e\x01\x05\x00\x00\x00\x07\x03\x52\x09\x30\x81\x45\x22\x01", ErrMalformed},
		{"codec 15 without room for the IMEI", "\x0f\x01\x05\x00\x00\x00\x0btime\x03\x52\x09\x30\x81\x45\x22\x01", ErrMalformed},
		{"codec 14 whose IMEI reaches into the next message", "\x0e\x02\x05\x00\x00\x00\x00\x05\x00\x00\x00\x0812345678\x02", ErrMalformed},
		{"an IMEI of 16 digits", "\x0e\x01\x05\x00\x00\x00\x08\x13\x52\x09\x30\x81\x45\x22\x51\x01", ErrMalformed},
		{"an IMEI with a letter in the lower half", "\x0e\x01\x05\x00\x00\x00\x08\x03\x52\x09\x30\x81\x45\x22\x5a\x01", ErrMalformed},
		{"an IMEI with a letter in the upper half", "\x0f\x01\x05\x00\x00\x00\x0ctime\x03\x52\x09\x30\x81\x45\xf2\x51\x01", ErrMalformed},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			t.Parallel()
			requireMessagesError(t, []byte(c.body), c.want)
		})
	}
}

func TestOddMessagesPass(t *testing.T) {
	t.Parallel()
	imei := mustIMEI(t, someIMEI)
	const inBCD = "\x03\x52\x09\x30\x81\x45\x22\x51"
	for _, c := range []struct {
		sentence string
		body     string
		want     []Message
	}{
		{"a frame of no messages", "\x0c\x00\x00", nil},
		{"a message of no text", "\x0c\x01\x06\x00\x00\x00\x00\x01", []Message{{Type: TypeResponse, Text: []byte{}}}},
		{"a type that nobody documents", "\x0c\x01\xee\x00\x00\x00\x01x\x01", []Message{{Type: 0xEE, Text: []byte("x")}}},
		{"ends of line stay", "\x0c\x01\x06\x00\x00\x00\x03x\r\n\x01", []Message{{Type: TypeResponse, Text: []byte("x\r\n")}}},
		{"a camera's bytes are not text", "\x0c\x01\x0d\x00\x00\x00\x03\x00\xff\x80\x01", []Message{{Type: TypeCamera, Text: []byte{0, 0xFF, 0x80}}}},
		{"two messages in a frame", "\x0c\x02\x06\x00\x00\x00\x01x\x0d\x00\x00\x00\x02yz\x02",
			[]Message{{Type: TypeResponse, Text: []byte("x")}, {Type: TypeCamera, Text: []byte("yz")}}},
		{"a time without a text", "\x0d\x01\x06\x00\x00\x00\x04\x65\x4b\x65\xa4\x01", []Message{{Type: TypeResponse, Timestamp: 1699440036, Text: []byte{}}}},
		{"every message of codec 14 has its IMEI", "\x0e\x02\x06\x00\x00\x00\x09" + inBCD + "x\x11\x00\x00\x00\x08" + inBCD + "\x02",
			[]Message{{Type: TypeResponse, IMEI: imei, Text: []byte("x")}, {Type: TypeNACK, IMEI: imei, Text: []byte{}}}},
		{"every message of codec 15 has both", "\x0f\x01\x0b\x00\x00\x00\x0d\x65\x4b\x65\xa4" + inBCD + "x\x01",
			[]Message{{Type: 0x0B, Timestamp: 1699440036, IMEI: imei, Text: []byte("x")}}},
		{"a codec 12 text that looks like an IMEI is text", "\x0c\x01\x06\x00\x00\x00\x08" + inBCD + "\x01", []Message{{Type: TypeResponse, Text: []byte(inBCD)}}},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			t.Parallel()
			s, err := DecodeMessages([]byte(c.body))
			require.NoError(t, err)
			require.Equal(t, len(c.want), s.Len())
			require.Equal(t, c.want, slices.Collect(s.All()))
			require.Equal(t, c.body, string(bodyOf(t, s.Codec, c.want...)))
		})
	}
}

func TestEveryTruncationOfMessagesIsRefused(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(6, 6))
	for _, c := range commandCodecs {
		body := bodyOf(t, c, randomMessages(rnd, c, 3)...)
		for n := range len(body) - 1 {
			// The last byte repeats the count: otherwise the messages would not matter.
			_, err := DecodeMessages(append(slices.Clone(body[:n]), 3))
			require.Error(t, err, "codec %v, %d of %d bytes", c, n, len(body))
		}
	}
}

func TestMessagesThatAreEncodedAreDecoded(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(7, 7))
	for _, c := range commandCodecs {
		for _, n := range []int{0, 1, 2, 30, 255} {
			want := randomMessages(rnd, c, n)
			frame, err := AppendMessages([]byte{keepAlive}, c, want...)
			require.NoError(t, err)
			f, err := NewReader(bytes.NewReader(frame), 1<<20).Next()
			require.NoError(t, err)
			require.Equal(t, n, int(f.Count))
			s, err := DecodeMessages(f.Body)
			require.NoError(t, err)
			require.Equal(t, c, s.Codec)
			require.Equal(t, want, slices.AppendSeq([]Message{}, s.All()))
		}
	}
}

func TestEncodingRefusesMessagesThatACodecCannotCarry(t *testing.T) {
	t.Parallel()
	imei := mustIMEI(t, someIMEI)
	for _, c := range []struct {
		sentence string
		codec    Codec
		message  Message
		want     error
	}{
		{"codec 12 has no timestamp", Codec12, Message{Timestamp: 1}, ErrEncode},
		{"codec 14 has no timestamp", Codec14, Message{IMEI: imei, Timestamp: 1}, ErrEncode},
		{"codec 12 has no IMEI", Codec12, Message{IMEI: imei}, ErrEncode},
		{"codec 13 has no IMEI", Codec13, Message{IMEI: imei}, ErrEncode},
		{"an IMEI is digits in codec 14", Codec14, Message{IMEI: IMEI{0x0A}}, ErrEncode},
		{"an IMEI is digits in codec 15", Codec15, Message{IMEI: IMEI{7: 0xA0}}, ErrEncode},
		{"an IMEI has a leading 0", Codec14, Message{IMEI: IMEI{0x10}}, ErrEncode},
		{"codec 8 carries no messages", Codec8, Message{}, ErrUnknownCodec},
		{"codec 16 carries no messages", Codec16, Message{}, ErrUnknownCodec},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			t.Parallel()
			out, err := AppendMessages([]byte("kept"), c.codec, Message{}, c.message)
			require.ErrorIs(t, err, c.want)
			require.Equal(t, "kept", string(out))
		})
	}
	_, err := AppendMessages(nil, Codec12, make([]Message, 256)...)
	require.ErrorIs(t, err, ErrEncode)
}

func TestCommandFramesAreReadAtEverySplit(t *testing.T) {
	t.Parallel()
	// Sizes seen in the field: a short answer, and a camera's frame, which exceeds a fresh buffer.
	answer := Message{Type: TypeResponse, IMEI: mustIMEI(t, someIMEI), Text: []byte("DI1:1 DI2:0")}
	photo := Message{Type: TypeCamera, Text: bytes.Repeat([]byte{0xFF, 0x00, 0xD8}, 700)}
	records := loadVector(t, "codec8_tcp_1").bytes(t)
	frame, err := AppendMessages(slices.Clone(records), Codec14, answer)
	require.NoError(t, err)
	stream, err := AppendMessages(append(frame, keepAlive), Codec12, photo)
	require.NoError(t, err)
	stream = append(stream, records...)

	for i := range len(stream) + 1 {
		r := NewReader(chunks(stream[:i], stream[i:]), 0)
		for _, want := range []any{Codec8, answer, photo, Codec8} {
			f, err := r.Next()
			require.NoError(t, err, "split at %d", i)
			if want == Codec8 {
				require.Equal(t, records, f.Raw)
				continue
			}
			s, err := DecodeMessages(f.Body)
			require.NoError(t, err)
			require.Equal(t, []any{want}, []any{slices.Collect(s.All())[0]}, "split at %d", i)
		}
	}
}

func TestAViewOfMessagesUsedTooLongStopsAndDoesNotPanic(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 8))
	for i := range 400 {
		c := commandCodecs[i%4]
		body := bodyOf(t, c, randomMessages(rnd, c, 3)...)
		s, err := DecodeMessages(body)
		require.NoError(t, err)
		for range 10 { // the next frame is overwriting the buffer
			body[rnd.IntN(len(body))] = byte(rnd.IntN(64))
		}
		require.LessOrEqual(t, len(slices.Collect(s.All())), 3)
	}
}

func TestAMessageThatChangedUnderTheWalkEndsIt(t *testing.T) {
	t.Parallel()
	body := bodyOf(t, Codec12, Message{Text: []byte("x")}, Message{Text: []byte("y")}, Message{Text: []byte("z")})
	s, err := DecodeMessages(body)
	require.NoError(t, err)
	body[9] = 0x7F // the size of the second
	require.Equal(t, []Message{{Text: []byte("x")}}, slices.Collect(s.All()))
}

func TestWalkingMessagesMayEndEarly(t *testing.T) {
	t.Parallel()
	s, err := DecodeMessages(bodyOf(t, Codec12, Message{Text: []byte("x")}, Message{Text: []byte("y")}))
	require.NoError(t, err)
	var got []string
	for m := range s.All() {
		got = append(got, string(m.Text))
		break
	}
	require.Equal(t, []string{"x"}, got)
}

func TestIMEIsInBCD(t *testing.T) {
	t.Parallel()
	for _, digits := range []string{someIMEI, "000000000000000", "999999999999999", "123456789012345"} {
		m := mustIMEI(t, digits)
		require.Equal(t, digits, m.String())
		require.True(t, m.valid())
	}
	require.Equal(t, IMEI{0x03, 0x52, 0x09, 0x30, 0x81, 0x45, 0x22, 0x51}, mustIMEI(t, someIMEI))
	require.NotEqual(t, mustIMEI(t, someIMEI), mustIMEI(t, "352093081452468"))
	for _, bad := range []string{"", "35209308145225", "0352093081452251", "35209308145225x", "35209308145225/", "35209308145225:", strings.Repeat("٣", 15)} {
		_, err := ParseIMEI(bad)
		require.ErrorIs(t, err, ErrEncode, "%q", bad)
	}
}
