package teltonika

import (
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
func bodyOf(c Codec, messages ...Message) []byte {
	frame := AppendMessages(nil, c, messages...)
	return frame[header : len(frame)-4]
}

func requireMessagesError(t testing.TB, body []byte, want error, why ...any) {
	t.Helper()
	s, err := DecodeMessages(body)
	require.ErrorIs(t, err, want, why...)
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
		requireMessagesError(t, []byte(c.body), c.want, c.sentence)
	}
}

func TestAViewOfMessagesUsedTooLongStopsAndDoesNotPanic(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(8, 8))
	for i := range 400 {
		c := commandCodecs[i%4]
		body := bodyOf(c, randomMessages(rnd, c, 3)...)
		s, err := DecodeMessages(body)
		require.NoError(t, err)
		for range 10 { // the next frame is overwriting the buffer
			body[rnd.IntN(len(body))] = byte(rnd.IntN(64))
		}
		require.LessOrEqual(t, len(slices.Collect(s.All())), 3)
	}
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
		require.Error(t, err, "%q", bad)
	}
}
