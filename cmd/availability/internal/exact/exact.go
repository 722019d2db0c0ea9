// Package exact reads JSON objects with case-sensitive, unique member names. encoding/json ignores
// case, and takes the last of two members with the same name, whereas a filter in front of us may
// have read the first.
package exact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// errObject, like all errors here, is for the sender.
var errObject = errors.New("expected one JSON object")

// Object returns the members of one JSON object. It refuses text that is not UTF-8, and repeated
// names at any depth.
func Object(raw []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(raw) {
		return nil, errors.New("expected UTF-8")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, errObject
		}
		return nil, err
	}
	if members == nil { // null
		return nil, errObject
	}
	return members, once(raw)
}

type level struct {
	names map[string]bool // seen so far; nil in an array
	name  bool            // the next token is a name
}

func once(raw []byte) error {
	var levels []level
	for d := json.NewDecoder(bytes.NewReader(raw)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		top := len(levels) - 1
		switch text, isText := token.(string); {
		case token == json.Delim('}'), token == json.Delim(']'):
			levels = levels[:top]
			continue
		case isText && top >= 0 && levels[top].name:
			if levels[top].names[text] {
				return fmt.Errorf("member %q: given more than once", text)
			}
			levels[top].names[text], levels[top].name = true, false
			continue
		case top >= 0:
			levels[top].name = levels[top].names != nil
		}
		switch token {
		case json.Delim('{'):
			levels = append(levels, level{names: map[string]bool{}, name: true})
		case json.Delim('['):
			levels = append(levels, level{})
		}
	}
}

// Unmarshal stores one JSON object in the struct that v points to. It also refuses members that
// match no field's tag.
func Unmarshal(raw []byte, v any) error {
	members, err := Object(raw)
	if err != nil {
		return err
	}
	known := tags(reflect.TypeOf(v).Elem())
	for name := range members {
		if !slices.Contains(known, name) {
			return fmt.Errorf("unknown member %q; known: %s", name, strings.Join(known, ", "))
		}
	}
	return json.Unmarshal(raw, v)
}

func tags(t reflect.Type) (names []string) {
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
