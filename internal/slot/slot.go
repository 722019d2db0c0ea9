// Package slot computes the Redis Cluster slot of a key.
//
//	slot.Of("{rollcall}:janitor:leader")
package slot

import "strings"

// Count is the number of slots of a Cluster.
const Count = 16384

// Of returns the CRC16 of the key, or of the text between its first '{' and the next '}' if that is
// not empty, modulo Count.
func Of(key string) int {
	if _, tagged, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(tagged, "}"); ok && tag != "" {
			key = tag
		}
	}
	return int(CRC16(key)) % Count
}

// CRC16 has polynomial 0x1021, initial value 0, no reflection (XMODEM; CRC16 of "123456789" is
// 0x31C3).
func CRC16(s string) (crc uint16) {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return crc
}
