package teltonika

import (
	"encoding/hex"
	"fmt"
	"strings"
)

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
