package orphan

import (
	"encoding/json"
	"fmt"
	"regexp"
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

var (
	special = regexp.MustCompile(`[\x00-\x1f"\\]`)
	escaped = regexp.MustCompile(`\\(u.{4}|.)`)
)

func (r raw) MarshalJSON() ([]byte, error) {
	return []byte(`"` + special.ReplaceAllStringFunc(string(r), func(one string) string {
		quoted := jsonOf(one)
		return quoted[1 : len(quoted)-1]
	}) + `"`), nil
}

func (r *raw) UnmarshalJSON(quoted []byte) error {
	if len(quoted) < 2 || quoted[0] != '"' {
		return fmt.Errorf("want a text, not %.40s", quoted)
	}
	*r = raw(escaped.ReplaceAllStringFunc(string(quoted[1:len(quoted)-1]), func(one string) (text string) {
		_ = json.Unmarshal([]byte(`"`+one+`"`), &text) // the decoder has checked it
		return text
	}))
	return nil
}
