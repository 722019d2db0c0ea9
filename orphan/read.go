package orphan

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
)

func (l *looking) readValues(ctx context.Context) error {
	if l.Read == "" {
		return nil
	}
	var read []*finding
	for f := range l.undecided {
		if !f.alone {
			read = append(read, f)
		} else if len(l.fields) > 0 && !l.known(f) {
			f.keep(unreadable, "its parent is gone, and with it what %v says", l.fields)
		}
	}
	if l.Read != "hash" && l.Members == nil {
		var err error
		if read, err = l.readShort(ctx, read); err != nil {
			return err
		}
	}
	sizes, err := l.measure(ctx, read)
	if err != nil {
		return err
	}
	var whole, asked []question
	for _, f := range read {
		q := question{
			f: f, args: []string{"GET", f.key}, size: sizes[f],
			told: func(answer *redis.Cmd) { l.readValue(f, answer) },
		}
		most := int64(mostValue)
		if l.Read == "hash" {
			q.args, most = []string{"HMGET", f.key}, mostField
			for _, at := range l.fields {
				q.args = append(q.args, string(at))
			}
			if len(l.fields) == 0 {
				q.args = []string{"HLEN", f.key}
			}
		}
		if l.Members != nil {
			q.args, most = l.membership(f), mostField
		}
		switch {
		case q.size > most:
			f.keep(large, "it has %d bytes to read, and may have %d", q.size, most)
		case q.size > wholeBytes && most == mostValue:
			asked = append(asked, q) // it is compared in pieces
		default:
			whole = append(whole, q)
		}
	}
	if err := l.ask(ctx, asked); err != nil {
		return err
	}
	return l.observe(ctx, whole)
}

// readShort reads short values, which most are, in one call each, and returns the other candidates.
// An empty answer may also mean that the key is missing.
func (l *looking) readShort(ctx context.Context, of []*finding) (rest []*finding, err error) {
	asked := make([]question, 0, len(of))
	for _, f := range of {
		args := []string{"GETRANGE", f.key, "0", strconv.Itoa(shortBytes - 1)}
		asked = append(asked, question{f: f, args: args, told: func(answer *redis.Cmd) {
			if text, err := answer.Text(); err != nil || text == "" || len(text) == shortBytes {
				rest = append(rest, f)
				return
			}
			f.observations = append(f.observations, observed(args, answer))
			l.readValue(f, answer)
		}})
	}
	return rest, l.ask(ctx, asked)
}

func (l *looking) measure(ctx context.Context, of []*finding) (map[*finding]int64, error) {
	sizes := make(map[*finding]int64, len(of))
	var asked []question
	for _, f := range of {
		told := func(answer *redis.Cmd) {
			n, _ := answer.Int64() // another type is found out by the read
			sizes[f] += n
		}
		switch {
		case l.Members != nil:
			asked = append(asked, question{f: f, args: []string{"HSTRLEN", f.key, f.member}, told: told})
		case l.Read != "hash":
			asked = append(asked, question{f: f, args: []string{"STRLEN", f.key}, told: told})
		}
		for _, at := range l.fields {
			if l.Read == "hash" {
				asked = append(asked, question{f: f, args: []string{"HSTRLEN", f.key, string(at)}, told: told})
			}
		}
	}
	return sizes, l.ask(ctx, asked)
}

func (l *looking) readValue(f *finding, answer *redis.Cmd) {
	value, err := answer.Result()
	switch v := value.(type) {
	case string:
		if l.Read == "text" {
			f.value = map[string]any{"": v}
		} else if f.value = readJSON(v); f.value == nil {
			f.keep(unreadable, "it is no JSON object")
			return
		}
		for _, at := range l.fields {
			if lacks(f.value, at) {
				f.isWithout(at)
			}
		}
		f.value = leaves(f.value, l.fields)
	case int64:
		f.value = map[string]any{}
		if v == 0 {
			f.keep(absent, "it is gone")
		}
		return
	case []any:
		f.value = map[string]any{}
		for i, each := range v {
			if text, ok := each.(string); ok && len(text) <= longText {
				f.value[string(l.fields[i])] = text
			}
			if each == nil {
				f.isWithout(l.fields[i])
			}
		}
	default:
		if errors.Is(err, redis.Nil) {
			f.keep(absent, "it is gone")
		} else {
			f.keep(unreadable, "%v", err)
		}
		return
	}
	for name, at := range l.bind {
		text := l.field(f, at)
		if text == "" {
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

// field is a field of a candidate's value. A hash's fields are not nested.
func (l *looking) field(f *finding, at fieldPath) string {
	if l.Read == "hash" {
		text, _ := f.value[string(at)].(string)
		return text
	}
	return fieldOf(f.value, at)
}

func (l *looking) text(f *finding, at fieldPath) (text string, ok bool) {
	if l.Read == "hash" {
		text, ok = f.value[string(at)].(string)
		return text, ok
	}
	return textOf(f.value, at)
}
