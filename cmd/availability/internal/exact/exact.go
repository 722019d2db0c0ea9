// Package exact reads JSON objects with case-sensitive, unique member names. encoding/json ignores
// case, and takes the last of two members with the same name, whereas a filter in front of us may
// have read the first.
package exact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	return members, once(json.NewDecoder(bytes.NewReader(raw)))
}

// once refuses repeated names in the next value of a valid text.
func once(d *json.Decoder) error {
	token, err := d.Token()
	if _, composite := token.(json.Delim); err != nil || !composite {
		return err
	}
	names := map[json.Token]bool{}
	for d.More() {
		if token == json.Delim('{') {
			name, err := d.Token()
			if err != nil {
				return err
			}
			if names[name] {
				return fmt.Errorf("member %q: given more than once", name)
			}
			names[name] = true
		}
		if err := once(d); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
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
