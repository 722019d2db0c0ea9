package orphan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// raw is text that JSON carries byte by byte, as cjson does: names need not be UTF-8.
type raw string

func raws(texts []string) []raw {
	all := make([]raw, len(texts))
	for i, text := range texts {
		all[i] = raw(text)
	}
	return all
}

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
