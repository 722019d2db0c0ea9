package registry

import (
	"fmt"
	"strconv"
	"strings"
)

// Owners name devices to each other in messages of words, separated by single spaces. An id may be
// any string, so what would break a word is escaped in it, as in a URL: "%" and two hex digits
// stand for a space, a control character, a "%", and a "/" at the beginning, since that
// begins a message about disputes; "%" alone is the empty id. Ordinary ids are words as they
// are, which is all that owners of older versions understand. owner.lua escapes in the same way.

// word returns the word for an id.
func word(id string) string {
	if id == "" {
		return "%"
	}
	escaped := func(i int) bool {
		c := id[i]
		return c <= ' ' || c == 0x7f || c == '%' || c == '/' && i == 0
	}
	var b strings.Builder
	for i := range len(id) {
		if escaped(i) {
			fmt.Fprintf(&b, "%%%02X", id[i])
		} else {
			b.WriteByte(id[i])
		}
	}
	return b.String()
}

// unword returns the id that a word stands for. A "%" that begins no escape is taken as it is:
// owners of older versions escape nothing.
func unword(word string) string {
	if word == "%" {
		return ""
	}
	if !strings.Contains(word, "%") {
		return word
	}
	id := make([]byte, 0, len(word))
	for i := 0; i < len(word); i++ {
		if word[i] == '%' && i+2 < len(word) {
			if c, err := strconv.ParseUint(word[i+1:i+3], 16, 8); err == nil {
				id = append(id, byte(c))
				i += 2
				continue
			}
		}
		id = append(id, word[i])
	}
	return string(id)
}
