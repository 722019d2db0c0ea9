package orphan

import (
	"context"
	"errors"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// readValues reads what the rule reads of its candidates. A longer value than wholeBytes is not
// read.
func (l *looking) readValues(ctx context.Context) error {
	switch {
	case l.Read == "":
		return nil
	case l.Read == "hash":
		return l.readMeasured(ctx, func(f *finding) []string {
			if len(l.fields) == 0 {
				return []string{"HLEN", f.key}
			}
			args := []string{"HMGET", f.key}
			for _, at := range l.fields {
				args = append(args, string(at))
			}
			return args
		})
	case l.Members != nil:
		return l.readMeasured(ctx, func(f *finding) []string { return []string{"HGET", f.key, f.member} })
	}
	return l.readTexts(ctx)
}

// readMeasured asks for the sizes of fields first.
func (l *looking) readMeasured(ctx context.Context, command func(*finding) []string) error {
	sizes, failed := map[*finding]int64{}, map[*finding]error{}
	var asked []question
	for f := range l.undecided {
		fields := []string{f.member}
		if l.Members == nil {
			fields = command(f)[2:]
		}
		for _, field := range fields {
			asked = append(asked, question{args: []string{"HSTRLEN", f.key, field}, told: func(answer *redis.Cmd) {
				n, err := answer.Int64()
				if sizes[f] += n; err != nil {
					failed[f] = err
				}
			}})
		}
	}
	if err := l.ask(ctx, asked); err != nil {
		return err
	}
	asked = nil
	for f := range l.undecided {
		switch {
		case failed[f] != nil:
			f.keep(unreadable, "%v", failed[f])
		case sizes[f] > wholeBytes:
			f.keep(large, "it has %d bytes to read, and may have %d", sizes[f], wholeBytes)
		default:
			asked = append(asked, question{f: f, args: command(f), size: sizes[f],
				told: func(answer *redis.Cmd) { l.readValue(f, answer) }})
		}
	}
	return l.observe(ctx, asked)
}

// readTexts reads short values, which most are, in one call each. An empty answer may also mean
// that the key is missing.
func (l *looking) readTexts(ctx context.Context) error {
	var asked, long []question
	for f := range l.undecided {
		args := []string{"GETRANGE", f.key, "0", strconv.Itoa(shortBytes - 1)}
		asked = append(asked, question{f: f, args: args, told: func(answer *redis.Cmd) {
			switch text, err := answer.Text(); {
			case err == nil && text != "" && len(text) < shortBytes:
				f.observations = append(f.observations, observed(args, answer))
				l.readValue(f, answer)
			case err == nil && text == "":
				long = append(long, question{f: f, args: []string{"GET", f.key},
					told: func(answer *redis.Cmd) { l.readValue(f, answer) }})
			default:
				long = append(long, question{f: f, args: []string{"GETRANGE", f.key, "0", strconv.Itoa(wholeBytes)},
					size: wholeBytes, told: func(answer *redis.Cmd) { l.readValue(f, answer) }})
			}
		}})
	}
	if err := l.ask(ctx, asked); err != nil {
		return err
	}
	return l.observe(ctx, long)
}

func (l *looking) readValue(f *finding, answer *redis.Cmd) {
	value, err := answer.Result()
	switch v := value.(type) {
	case string:
		if len(v) > wholeBytes {
			f.keep(large, "it has more than %d bytes to read", wholeBytes)
			return
		}
		object := map[string]any{"": v}
		if l.Read == "json" {
			object = readJSON(v)
		}
		if object == nil {
			f.keep(unreadable, "it is no JSON object")
			return
		}
		f.value = fieldsOf(object, l.fields...)
	case int64:
		if v == 0 {
			f.keep(absent, "it is gone")
		}
		return
	case []any:
		f.value = map[fieldPath]any{}
		for i, each := range v {
			if text, ok := each.(string); ok && len(text) <= longText {
				f.value[l.fields[i]] = text
			} else if each != nil {
				f.value[l.fields[i]] = nil
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
