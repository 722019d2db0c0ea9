package rules

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// spelledByte is a byte that is not text, in templates, marks, reports and the log.
var spelledByte = regexp.MustCompile(`\\x[0-9a-fA-F]{2}`)

// Spell writes a name as text that no other name has: control characters, and bytes that are not
// UTF-8, become \xff. So does the backslash of a name that has \xff itself.
func Spell(name string) string {
	odd := func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }
	if !strings.ContainsFunc(name, odd) && !strings.Contains(name, `\x`) {
		return name
	}
	name = spelledByte.ReplaceAllStringFunc(name, func(itself string) string { return `\x5c` + itself[1:] })
	var s strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if odd(r) && size == 1 {
			fmt.Fprintf(&s, `\x%02x`, name[0])
		} else {
			s.WriteString(name[:size])
		}
		name = name[size:]
	}
	return s.String()
}

// Unspell reverses Spell.
func Unspell(text string) string {
	if !strings.Contains(text, `\x`) {
		return text
	}
	return spelledByte.ReplaceAllStringFunc(text, func(spelled string) string {
		var b byte
		_, _ = fmt.Sscanf(spelled[2:], "%x", &b)
		return string([]byte{b})
	})
}
