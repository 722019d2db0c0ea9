package inspect

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Short formats a duration for people: 4.2s, 2m13s, 3h5m, 4d2h.
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

// span is for programs: Go's syntax, as precise as Short.
func span(d time.Duration) string {
	if d < 24*time.Hour {
		return Short(d)
	}
	return trimZeros(d.Round(time.Second).String())
}

func trimZeros(s string) string {
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Megabytes formats a number of bytes.
func Megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

// Ago formats an age.
func Ago(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return Short(d) + " ago"
}

// pseudo is the version that Go derives from a commit without a tag.
var pseudo = regexp.MustCompile(`^v\d+\.\d+\.\d+-(?:.*\.)?\d{14}-([0-9a-f]{8,})(\+.*)?$`)

// Version is short: of an untagged build it is the commit; + : with changes.
func Version(v string) string {
	m := pseudo.FindStringSubmatch(v)
	switch {
	case m == nil:
		return v
	case m[2] != "":
		return m[1][:8] + "+"
	}
	return m[1][:8]
}
