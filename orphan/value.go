package orphan

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// readJSON decodes an object; nil for anything else, or if a text in it is not Unicode, which the
// decoder would replace.
func readJSON(text string) map[string]any {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var object map[string]any
	if !utf8.ValidString(text) || d.Decode(&object) != nil {
		return nil
	}
	if _, err := d.Token(); err != io.EOF {
		return nil
	}
	return object
}

// integer is a number that all JSON writers write alike.
var integer = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

// textOf is what a field is compared as, or false if JSON writers differ about it.
func textOf(leaf any) (text string, ok bool) {
	switch v := leaf.(type) {
	case string:
		return v, true
	case json.Number:
		if integer.MatchString(v.String()) {
			return v.String(), true
		}
	case bool:
		return strconv.FormatBool(v), true
	}
	return "", false
}

// longText (bytes) is enough for names and states; a longer text cannot be read.
const longText = 4 << 10

// fieldsOf picks the fields of an object that it has: the rest could be of any size. One that is
// neither text, number nor boolean, or that holds half a surrogate pair, is nil.
func fieldsOf(object map[string]any, paths ...string) map[string]any {
	picked := map[string]any{}
	for _, at := range paths {
		value, has := lookUp(object, at)
		if !has {
			continue
		}
		picked[at] = nil
		switch v := value.(type) {
		case string:
			if len(v) <= longText && !strings.ContainsRune(v, utf8.RuneError) {
				picked[at] = v
			}
		case json.Number:
			if len(v) <= longText {
				picked[at] = v
			}
		case bool:
			picked[at] = v
		}
	}
	return picked
}

// lookUp finds a field. A value that is not an object lacks none.
func lookUp(object map[string]any, at string) (value any, has bool) {
	name, rest, deeper := strings.Cut(at, ".")
	value, has = object[name]
	inner, is := value.(map[string]any)
	if !has || !deeper {
		return value, has
	}
	if !is {
		return nil, true
	}
	return lookUp(inner, rest)
}

// Only times between these are believed: a rating, or seconds instead of milliseconds, is not a
// time.
var (
	earliest = time.Date(2001, 9, 9, 1, 46, 40, 0, time.UTC) // 10^9 seconds
	latest   = time.Date(2286, 11, 20, 17, 46, 40, 0, time.UTC)
)

// Unit iso is ISO 8601 with its zone.
func readTime(text, unit string) (time.Time, bool) {
	if unit == "iso" {
		at, err := time.Parse(time.RFC3339Nano, text)
		return at, err == nil && believed(at)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return time.Time{}, false
	}
	if unit == "s" {
		f *= 1000
	}
	if !(f >= float64(earliest.UnixMilli()) && f < float64(latest.UnixMilli())) {
		return time.Time{}, false // also one beyond int64
	}
	return time.UnixMilli(int64(f)), true
}

func withoutZone(text string) bool {
	_, ok := readTime(text+"Z", "iso")
	return ok
}

func believed(at time.Time) bool { return !at.Before(earliest) && at.Before(latest) }

// hold reports whether no condition of m fails, and the first undecided field, or "".
func hold(m *rules.Mongo, d Document, now time.Time) (hold bool, caution string) {
	hold = true
	for _, c := range m.All {
		switch holds, known := holds(c, d, now); {
		case !known:
			caution = cmp.Or(caution, c.Field)
		case !holds:
			hold = false
		}
	}
	return hold, caution
}

// holds returns known false if the field has no answer.
func holds(c rules.Condition, d Document, now time.Time) (holds, known bool) {
	value, there := d[c.Field]
	if !there {
		return false, false
	}
	if c.Before > 0 {
		at, ok := value.(time.Time)
		known = ok && believed(at) // a zero time means none, in whatever language it was written
		return known && !at.Add(c.Before).After(now), known
	}
	switch value.(type) {
	case string, int64, bool:
		return slices.Contains(c.In, fmt.Sprint(value)), true
	}
	return false, false
}

// readValues reads what the rule reads of its candidates, unless that is large. Most texts are
// short, and read in one call.
func (l *looking) readValues(ctx context.Context) error {
	if l.Read == "" {
		return nil
	}
	var short, asked []question
	for f := range l.undecided {
		q := question{f: f, args: []string{"FIELDS", f.key}, told: func(answer *redis.Cmd) {
			values, err := answer.Slice()
			l.readValue(f, values, err)
		}}
		switch {
		case l.Members != nil:
			q.args = append(q.args, f.member)
		case l.Read == "hash":
			q.args = append(q.args, l.fields...)
		default:
			q.args[0] = "READ"
			args := []string{"GETRANGE", f.key, "0", strconv.Itoa(shortBytes - 1)}
			short = append(short, question{f: f, args: args, told: func(answer *redis.Cmd) {
				if text, err := answer.Text(); err == nil && text != "" && len(text) < shortBytes {
					f.observations = append(f.observations, observed(args, answer))
					l.readValue(f, []any{text}, nil)
				} else {
					asked = append(asked, q)
				}
			}})
			continue
		}
		asked = append(asked, q)
	}
	if err := ask(ctx, l, short); err != nil {
		return err
	}
	return l.observe(ctx, asked)
}

func (l *looking) readValue(f *finding, values []any, err error) {
	switch {
	case errors.Is(err, redis.Nil), err == nil && l.Members != nil && values[0] == nil:
		f.keep(absent, "it is gone")
		return
	case err != nil && strings.HasPrefix(err.Error(), large):
		f.keep(large, "%v", err)
		return
	case err != nil:
		f.keep(unreadable, "%v", err)
		return
	case l.Read == "hash":
		f.value = map[string]any{}
		for i, each := range values {
			if text, ok := each.(string); ok && len(text) <= longText {
				f.value[l.fields[i]] = text
			} else if each != nil {
				f.value[l.fields[i]] = nil
			}
		}
	default:
		text, _ := values[0].(string)
		object := map[string]any{"": text}
		if l.Read == "json" {
			object = readJSON(text)
		}
		if object == nil {
			f.keep(unreadable, "it is no JSON object")
			return
		}
		f.value = fieldsOf(object, l.fields...)
	}
	for name, at := range l.bind {
		text, _ := textOf(f.value[at])
		if _, is := f.value[at].(bool); is || text == "" {
			f.keep(unreadable, "it has no %s", at)
			return
		}
		f.values[name] = text
	}
	for name := range l.bind {
		if !l.Fits(name, f.values[name]) {
			f.keep(foreign, "{%s} is %q, which is not what only and not say", name, f.values[name])
			return
		}
	}
}
