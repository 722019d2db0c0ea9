package orphan

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// readJSON decodes an object; nil if it is none.
func readJSON(text string) map[string]any {
	d := json.NewDecoder(bytes.NewBufferString(text))
	d.UseNumber()
	var object map[string]any
	if d.Decode(&object) != nil || d.More() {
		return nil
	}
	return object
}

// fieldOf is the text of a field, "" if there is none, or if it is neither text nor number.
func fieldOf(object map[string]any, at fieldPath) string {
	name, rest, deeper := strings.Cut(string(at), ".")
	switch v := object[name].(type) {
	case map[string]any:
		if deeper {
			return fieldOf(v, fieldPath(rest))
		}
	case string:
		if !deeper {
			return v
		}
	case json.Number:
		if !deeper {
			return v.String()
		}
	}
	return ""
}

// The times that are believed lie between these: a rating, or seconds where milliseconds are
// expected, is no time.
var (
	earliest = time.Date(2001, 9, 9, 1, 46, 40, 0, time.UTC) // a thousand million seconds
	latest   = time.Date(2286, 11, 20, 17, 46, 40, 0, time.UTC)
)

// readTime reads a number of milliseconds or seconds since 1970.
func readTime(text, unit string) (time.Time, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.Time{}, false
	}
	if unit == "s" {
		f *= 1000
	}
	if !(f >= float64(earliest.UnixMilli()) && f < float64(latest.UnixMilli())) {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(f)), true
}

// holds tells whether a condition holds of a document; known is false where the field cannot tell.
func (c Condition) holds(d Document, now time.Time) (holds, known bool) {
	value, there := d[c.Field]
	if !there {
		return false, false
	}
	if c.Before > 0 {
		at, ok := value.(time.Time)
		return ok && !at.Add(c.Before).After(now), ok
	}
	var text string
	switch v := value.(type) {
	case string:
		text = v
	case int64:
		text = strconv.FormatInt(v, 10)
	case bool:
		text = strconv.FormatBool(v)
	default:
		return false, false
	}
	for _, one := range c.In {
		if one == text {
			return true, true
		}
	}
	return false, true
}
