package teltonika

import "fmt"

// The server's answer to a handshake is one of these bytes.
const (
	Refuse byte = 0x00
	Accept byte = 0x01
)

const imeiDigits = 15

// IMEI reads the handshake, skipping keep-alive bytes before it, and returns the 15 digits.
// Anything else is ErrHandshake at its first wrong byte: a port scanner whose first two bytes would
// announce 18,245 more is not listened to. The caller bounds the time for all of it with one read
// deadline.
func (r *Reader) IMEI() (string, error) {
	for started := false; !started; {
		var err error
		if started, err = r.Await(); err != nil {
			return "", err
		}
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

// LuhnValid reports whether the last digit of an IMEI is the check digit of the others. Devices in
// the field fail this, so it is for counting, not for refusing. Anything but digits is not valid.
func LuhnValid(imei string) bool {
	sum := 0
	for i := range len(imei) {
		d := int(imei[i]) - '0'
		if d < 0 || d > 9 {
			return false
		}
		// Every second digit from the right, beginning beside the check digit, counts double, digits
		// added up.
		if (len(imei)-i)%2 == 0 {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
	}
	return len(imei) > 0 && sum%10 == 0
}

// AppendIMEI appends the handshake of a device. It returns ErrEncode if imei is not 15 digits.
func AppendIMEI(dst []byte, imei string) ([]byte, error) {
	if len(imei) != imeiDigits {
		return dst, fmt.Errorf("%w: IMEI %q has not %d digits", ErrEncode, imei, imeiDigits)
	}
	for i := range len(imei) {
		if imei[i] < '0' || imei[i] > '9' {
			return dst, fmt.Errorf("%w: IMEI %q is not all digits", ErrEncode, imei)
		}
	}
	return append(append(dst, 0, imeiDigits), imei...), nil
}
