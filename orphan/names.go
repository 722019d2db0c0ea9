package orphan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// spelledByte is a byte as templates, marks, reports and the log spell it where it is not text.
var spelledByte = regexp.MustCompile(`\\x[0-9a-fA-F]{2}`)

// isText reports whether a name can be written as it is, so that unspell reads it back.
func isText(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] == 0x7f {
			return false
		}
	}
	return utf8.ValidString(name) && (!strings.Contains(name, `\x`) || !spelledByte.MatchString(name))
}

// spell writes a name as text that only this name has: control characters, and bytes that are not
// UTF-8, become \xff. So does the backslash of a name that has \xff itself.
func spell(name string) string {
	if isText(name) {
		return name
	}
	name = spelledByte.ReplaceAllStringFunc(name, func(itself string) string { return `\x5c` + itself[1:] })
	var s strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if r == utf8.RuneError && size == 1 || r < ' ' || r == 0x7f {
			fmt.Fprintf(&s, `\x%02x`, name[0])
		} else {
			s.WriteString(name[:size])
		}
		name = name[size:]
	}
	return s.String()
}

// unspell is the name that a text spells.
func unspell(text string) string {
	if !strings.Contains(text, `\x`) {
		return text
	}
	return spelledByte.ReplaceAllStringFunc(text, func(spelled string) string {
		var b byte
		_, _ = fmt.Sscanf(spelled[2:], "%x", &b)
		return string([]byte{b})
	})
}

// raw is text that JSON carries byte by byte, as cjson does: names need not be UTF-8.
type raw string

func raws(texts []string) []raw {
	all := make([]raw, len(texts))
	for i, text := range texts {
		all[i] = raw(text)
	}
	return all
}

func rawValues(values map[string]string) map[string]raw {
	all := make(map[string]raw, len(values))
	for name, value := range values {
		all[name] = raw(value)
	}
	return all
}

// MarshalJSON writes bytes that are not UTF-8 as they are.
func (r raw) MarshalJSON() ([]byte, error) {
	quoted := []byte{'"'}
	err := eachStretch([]byte(r), func(stretch []byte, valid bool) error {
		if !valid {
			quoted = append(quoted, stretch...)
			return nil
		}
		text, err := json.Marshal(string(stretch))
		if err == nil {
			quoted = append(quoted, text[1:len(text)-1]...)
		}
		return err
	})
	return append(quoted, '"'), err
}

// UnmarshalJSON reads what MarshalJSON, or cjson, has written.
func (r *raw) UnmarshalJSON(quoted []byte) error {
	if len(quoted) < 2 || quoted[0] != '"' {
		return fmt.Errorf("want a text, not %.40s", quoted)
	}
	var s strings.Builder
	err := eachStretch(quoted[1:len(quoted)-1], func(stretch []byte, valid bool) error {
		if !valid {
			s.Write(stretch)
			return nil
		}
		var text string
		err := json.Unmarshal(bytes.Join([][]byte{nil, stretch, nil}, []byte{'"'}), &text)
		s.WriteString(text)
		return err
	})
	*r = raw(s.String())
	return err
}

// eachStretch cuts text into stretches that are UTF-8, and bytes that are not.
func eachStretch(text []byte, do func(stretch []byte, valid bool) error) error {
	for len(text) > 0 {
		n := 0
		for n < len(text) {
			r, size := utf8.DecodeRune(text[n:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			n += size
		}
		valid := n > 0
		if !valid {
			n = 1
		}
		if err := do(text[:n], valid); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}
