package teltonika

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// someDatagram is a documented datagram.
func someDatagram(t testing.TB) []byte { return loadVector(t, "codec8_udp").bytes(t) }

// relabeled corrects the length: otherwise the contents would not matter.
func relabeled(b []byte) []byte {
	b = slices.Clone(b)
	b[0], b[1] = byte((len(b)-2)>>8), byte(len(b)-2)
	return b
}

func TestDecodeDatagramRefuses(t *testing.T) {
	t.Parallel()
	good := someDatagram(t)
	for _, c := range []struct {
		sentence string
		packet   []byte
	}{
		{"nothing", nil},
		{"a length alone", []byte{0, 0}},
		{"a length that is one too small", replaced(good, 1, good[1]-1)},
		{"a length that is one too large", replaced(good, 1, good[1]+1)},
		{"a length of 64 KiB - 1", replaced(replaced(good, 0, 0xFF), 1, 0xFF)},
		{"two datagrams in a packet", slices.Concat(good, good)},
		{"a packet cut short", good[:len(good)-1]},
		{"an IMEI of no bytes", replaced(good, 7, 0)},
		{"an IMEI of 16 bytes", replaced(good, 7, 16)},
		{"an IMEI of 271 bytes", replaced(good, 6, 1)},
		{"a first digit that is none", replaced(good, 8, '/')},
		{"a last digit that is none", replaced(good, 22, ':')},
		{"no body", relabeled(good[:datagramHeader])},
		{"a body without a second count", relabeled(good[:datagramHeader+minBody-1])},
		{"a frame of TCP", loadVector(t, "codec8_tcp_1").bytes(t)},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			t.Parallel()
			d, err := DecodeDatagram(c.packet)
			require.ErrorIs(t, err, ErrDatagram)
			require.Equal(t, Datagram{}, d)
		})
	}
	least := relabeled(slices.Concat(good[:datagramHeader], []byte{0x10, 0, 0}))
	d, err := DecodeDatagram(least)
	require.NoError(t, err)
	require.Equal(t, Codec16, d.Codec)
}

func TestADatagramSaysWhatItsBodySaysFirst(t *testing.T) {
	t.Parallel()
	// The example has one record but announces seven, and counts one after it, in a packet with the
	// right length.
	d, err := DecodeDatagram(relabeled(loadVector(t, "codec16_udp_as_printed").bytes(t)))
	require.NoError(t, err)
	require.Equal(t, Codec16, d.Codec)
	require.Equal(t, byte(7), d.Count)
	var b Batch
	require.ErrorIs(t, b.Decode(d.Body), ErrCount)
}

func TestTheByteThatMeansNothingIsNotLookedAt(t *testing.T) {
	t.Parallel()
	want, err := DecodeDatagram(someDatagram(t))
	require.NoError(t, err)
	got, err := DecodeDatagram(replaced(someDatagram(t), 4, 0xAB))
	require.NoError(t, err)
	require.Equal(t, want, got)
	ack, err := DecodeDatagramAck([]byte{0, 5, 0xCA, 0xFE, 0xAB, 5, 1})
	require.NoError(t, err)
	require.Equal(t, DatagramAck{PacketID: 0xCAFE, AVLPacketID: 5, Accepted: 1}, ack)
}

func TestDatagramsThatAreEncodedAreDecoded(t *testing.T) {
	t.Parallel()
	body, err := AppendBody(nil, Codec8E, Record{Timestamp: 1700000000000}, Record{})
	require.NoError(t, err)
	for _, want := range []Datagram{
		{IMEI: mustIMEI(t, someIMEI), Codec: Codec8E, Count: 2, Body: body},
		{PacketID: math.MaxUint16, AVLPacketID: math.MaxUint8, IMEI: mustIMEI(t, "000000000000001"), Codec: Codec8E, Count: 2, Body: body},
		{PacketID: 0x0102, IMEI: mustIMEI(t, someIMEI), Body: make([]byte, math.MaxUint16-datagramHeader+2)},
	} {
		packet, err := AppendDatagram([]byte("kept"), want)
		require.NoError(t, err)
		require.Equal(t, "kept", string(packet[:4]))
		got, err := DecodeDatagram(packet[4:])
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestEncodingRefusesDatagramsThatCannotBe(t *testing.T) {
	t.Parallel()
	for sentence, d := range map[string]Datagram{
		"an IMEI that is not digits": {IMEI: IMEI{7: 0x0F}, Body: []byte{8, 0, 0}},
		"a length above 16 bits":     {Body: make([]byte, math.MaxUint16-datagramHeader+3)},
	} {
		out, err := AppendDatagram([]byte("kept"), d)
		require.ErrorIs(t, err, ErrEncode, sentence)
		require.Equal(t, "kept", string(out), sentence)
	}
}

func TestAnswersThatAreNoneAreRefused(t *testing.T) {
	t.Parallel()
	good := AppendDatagramAck(nil, DatagramAck{PacketID: 0xCAFE, AVLPacketID: 5, Accepted: 255})
	require.Equal(t, []byte{0, 5, 0xCA, 0xFE, 1, 5, 255}, good)
	for _, bad := range [][]byte{nil, good[:6], slices.Concat(good, []byte{0}), replaced(good, 1, 4), replaced(good, 0, 1)} {
		a, err := DecodeDatagramAck(bad)
		require.ErrorIs(t, err, ErrDatagram)
		require.Equal(t, DatagramAck{}, a)
	}
}
