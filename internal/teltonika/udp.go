package teltonika

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// datagramHeader: length, packet id, the unused byte, AVL packet id, and the IMEI.
	datagramHeader = 2 + 2 + 1 + 1 + 2 + imeiDigits

	datagramAck = 7

	// unused is not read: the vendor documents it so.
	unused = 0x01
)

// Datagram is a device's UDP packet: its IMEI and a frame's body.
type Datagram struct {
	PacketID    uint16 // the answer repeats it
	AVLPacketID byte   // the answer repeats it
	IMEI        IMEI
	Codec       Codec  // first byte of Body
	Count       byte   // second: records to acknowledge, unverified
	Body        []byte // for [Batch.Decode]; a view into the packet
}

// DecodeDatagram decodes a UDP packet, which holds exactly one datagram, but not its body. It
// returns ErrDatagram if the length is not the packet's, the IMEI is not 000F and 15 ASCII digits,
// or the body has no room for codec id and two counts.
func DecodeDatagram(packet []byte) (Datagram, error) {
	if len(packet) < datagramHeader+minBody {
		return Datagram{}, fmt.Errorf("%w: %d bytes", ErrDatagram, len(packet))
	}
	if says, is := int(binary.BigEndian.Uint16(packet)), len(packet)-2; says != is {
		return Datagram{}, fmt.Errorf("%w: it says %d bytes, %d came", ErrDatagram, says, is)
	}
	if n := binary.BigEndian.Uint16(packet[6:]); n != imeiDigits {
		return Datagram{}, fmt.Errorf("%w: an IMEI of %d bytes", ErrDatagram, n)
	}
	imei, ok := parseIMEI(packet[8:datagramHeader])
	if !ok {
		return Datagram{}, fmt.Errorf("%w: IMEI %q is not digits", ErrDatagram, packet[8:datagramHeader])
	}
	body := packet[datagramHeader:len(packet):len(packet)]
	return Datagram{
		PacketID: binary.BigEndian.Uint16(packet[2:]), AVLPacketID: packet[5], IMEI: imei,
		Codec: Codec(body[0]), Count: body[1], Body: body,
	}, nil
}

// AppendDatagram ignores Codec and Count, which are in Body. It returns ErrEncode and the unchanged
// dst if the IMEI is not digits or the length does not fit in 16 bits.
func AppendDatagram(dst []byte, d Datagram) ([]byte, error) {
	length := datagramHeader - 2 + len(d.Body)
	if length > math.MaxUint16 {
		return dst, fmt.Errorf("%w: a datagram of %d bytes", ErrEncode, length)
	}
	if !d.IMEI.valid() {
		return dst, fmt.Errorf("%w: IMEI %x is not a 0 and 15 digits", ErrEncode, [8]byte(d.IMEI))
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(length))
	dst = binary.BigEndian.AppendUint16(dst, d.PacketID)
	dst = append(dst, unused, d.AVLPacketID, 0, imeiDigits)
	dst = d.IMEI.appendDigits(dst)
	return append(dst, d.Body...), nil
}

// DatagramAck is the answer. Without it, or with the wrong count, the device sends again.
type DatagramAck struct {
	PacketID    uint16
	AVLPacketID byte
	Accepted    byte // records taken over
}

// AppendDatagramAck appends the answer's payload.
func AppendDatagramAck(dst []byte, a DatagramAck) []byte {
	dst = binary.BigEndian.AppendUint16(dst, datagramAck-2)
	dst = binary.BigEndian.AppendUint16(dst, a.PacketID)
	return append(dst, unused, a.AVLPacketID, a.Accepted)
}

// DecodeDatagramAck returns ErrDatagram if the packet does not have 7 bytes or declares another
// length.
func DecodeDatagramAck(packet []byte) (DatagramAck, error) {
	if len(packet) != datagramAck {
		return DatagramAck{}, fmt.Errorf("%w: an answer of %d bytes", ErrDatagram, len(packet))
	}
	if says := binary.BigEndian.Uint16(packet); says != datagramAck-2 {
		return DatagramAck{}, fmt.Errorf("%w: an answer that says %d bytes", ErrDatagram, says)
	}
	return DatagramAck{binary.BigEndian.Uint16(packet[2:]), packet[5], packet[6]}, nil
}
