package orphan

import "strings"

// slots is how many slots a Cluster has.
const slots = 16384

// slotOf is the slot of a key in a Cluster: the CRC16 (XMODEM) of the key, or of what stands
// between its first '{' and the next '}' if that is not empty.
func slotOf(key string) int {
	if _, tagged, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(tagged, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % slots
}
