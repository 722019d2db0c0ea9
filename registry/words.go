package registry

import (
	"fmt"
	"strconv"
	"strings"
)

// In messages between owners, ids are words separated by single spaces. An id may be any
// string, so it is escaped as in a URL: "%" and two hex digits for a space, a control character, a
// "%", and a leading "/", which marks messages about disputes; "%" alone is the empty id. Ordinary
// ids need no escapes, and owners of older versions understand no others. owner.lua escapes in the
// same way.

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

// unword decodes a word. It keeps a "%" that starts no escape, since owners of older versions
// escape nothing.
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
