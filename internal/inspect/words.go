package inspect

import (
	"fmt"
	"strings"
	"time"
)

// Short writes a duration as people read it, to the second, and to a tenth of it below ten: 4.2s,
// 2m13s, 3h5m, 4d2h.
func Short(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Short(-d)
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return trimZeros(d.Round(time.Second).String())
	case d < 24*time.Hour:
		return trimZeros(d.Round(time.Minute).String())
	}
	hours := int(d.Round(time.Hour).Hours())
	return strings.TrimSuffix(fmt.Sprintf("%dd%dh", hours/24, hours%24), "0h")
}

// span writes a duration for programs, to the second or a tenth of it as Short does: Go's syntax.
func span(d time.Duration) string {
	if d < 24*time.Hour {
		return Short(d)
	}
	return trimZeros(d.Round(time.Second).String())
}

// trimZeros drops the units that a duration ends with and that are zero: 3h5m0s is 3h5m.
func trimZeros(s string) string {
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Ago writes how long ago something was.
func Ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return Short(d) + " ago"
}
