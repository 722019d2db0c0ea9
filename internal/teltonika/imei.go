package teltonika

import "fmt"

// IMEI is a device's identity as codecs 14 and 15 carry it: a leading 0 and 15 digits, two a byte.
// Two are equal (==) if they are the same device; the zero value is 15 zeros, which no device has.
type IMEI [8]byte

// ParseIMEI returns the IMEI of 15 ASCII digits, as [Reader.IMEI] returns them. Anything else is
// ErrEncode.
func ParseIMEI(s string) (IMEI, error) {
	m, ok := parseIMEI(s)
	if !ok {
		return IMEI{}, fmt.Errorf("%w: IMEI %q is not %d digits", ErrEncode, s, imeiDigits)
	}
	return m, nil
}

// String returns the 15 digits. Of a value that did not come from this package it may return others
// than digits.
func (m IMEI) String() string { return string(m.appendDigits(nil)) }

func parseIMEI[T string | []byte](digits T) (m IMEI, ok bool) {
	if len(digits) != imeiDigits {
		return IMEI{}, false
	}
	for i := range imeiDigits {
		d := digits[i]
		if d < '0' || d > '9' {
			return IMEI{}, false
		}
		// The leading 0 takes the upper half of the first byte.
		m[(i+1)/2] |= (d - '0') << (4 * (i % 2))
	}
	return m, true
}

func (m IMEI) appendDigits(dst []byte) []byte {
	dst = append(dst, '0'+m[0]&0x0F)
	for _, b := range m[1:] {
		dst = append(dst, '0'+b>>4, '0'+b&0x0F)
	}
	return dst
}

// valid reports whether it is a leading 0 and 15 digits.
func (m IMEI) valid() bool {
	for _, b := range m {
		if b>>4 > 9 || b&0x0F > 9 {
			return false
		}
	}
	return m[0]>>4 == 0
}
