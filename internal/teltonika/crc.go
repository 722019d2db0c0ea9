package teltonika

// crcTable holds the CRC of every byte value for the reflected polynomial 0xA001.
var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i)
		for range 8 {
			if crc&1 != 0 {
				crc = crc>>1 ^ 0xA001
			} else {
				crc >>= 1
			}
		}
		t[i] = crc
	}
	return t
}()

// CRC returns the CRC-16/ARC (vendor's name: CRC-16/IBM; initial value 0) of a frame's body, codec
// id to second count.
func CRC(body []byte) uint16 {
	var crc uint16
	for _, b := range body {
		crc = crc>>8 ^ crcTable[byte(crc)^b]
	}
	return crc
}
