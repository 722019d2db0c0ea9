package orphan

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// signs goes on with undecided candidates: most are decided by the first sign.
func (l *looking) signs(ctx context.Context) error {
	for i := range l.life {
		s, asked := &l.life[i], slices.Collect(l.undecided)
		var err error
		switch s.Kind {
		case "mongo":
			err = l.documents(ctx, s, func(f *finding, over bool) {
				if over {
					f.keep(alive, "%s has it", s.Mongo.Collection)
				} else {
					f.because("%s says otherwise", s.Mongo.Collection)
				}
			})
		case "value":
			for f := range l.undecided {
				switch text, ok := textOf(f.value[s.field]); {
				case ok && slices.Contains(s.In, text):
					f.keep(alive, "%s is %q", s.field, text)
				case !ok || text == "":
					f.keep(unreadable, "it has no %s", s.field)
				default:
					f.because("%s is %q", s.field, text)
				}
			}
		case "channel":
			err = l.channels(ctx, s)
		default:
			err = l.places(ctx, s)
		}
		if err != nil {
			return err
		}
		for _, f := range asked {
			if f.verdict == alive {
				f.by = i + 1
			}
		}
	}
	return nil
}

func (l *looking) places(ctx context.Context, s *sign) error {
	var asked []question
	for f := range l.undecided {
		key, ok := l.expand(f, s.key)
		if !ok {
			continue
		}
		args := []string{"EXISTS", key}
		switch {
		case s.Kind == "json":
			args[0] = "READ"
		case s.Kind == "field":
			args[0] = "HEXISTS"
		case s.Kind == "time":
			args[0] = "FIELDS"
		case s.Holds == "list":
			args[0] = "LISTED"
		case s.Holds == "zset":
			args[0] = "ZSCORE"
		case s.Holds == "set":
			args[0] = "SISMEMBER"
		}
		of := ""
		if s.of != nil {
			if of, ok = l.expand(f, s.of); !ok {
				continue
			}
		}
		if s.of != nil && s.Kind != "json" {
			args = append(args, of)
		}
		asked = append(asked, question{f: f, args: args, told: func(answer *redis.Cmd) {
			l.place(f, s, strings.Join(args[1:], " "), of, answer)
		}})
	}
	return l.observe(ctx, asked)
}

// place judges what a place has: something, or a time, or a field that names the candidate.
func (l *looking) place(f *finding, s *sign, what, of string, answer *redis.Cmd) {
	said := replyText(answer)
	switch {
	case said == "_", said == ":0", said == "*_":
		f.because("no %s", what)
		return
	case said[0] == '-':
		f.keep(unknown, "%s: %s", what, said[1:])
		return
	case s.Within == 0 && s.Kind != "json":
		f.keep(alive, "%s is there", what)
		return
	}
	is, _ := textIn(answer)
	if s.Kind == "json" {
		var ok bool
		if is, ok = textOf(fieldsOf(readJSON(is), s.field)[s.field]); !ok {
			f.keep(unknown, "%s has no %s that can be read in a JSON object", what, s.field)
			return
		}
		what += s.field
	}
	at, read := readTime(is, s.Unit)
	switch age := f.at.Sub(at); {
	case s.Within > 0 && !read:
		f.keep(unknown, "%s has %s, which is no time in %s", what, is, s.Unit)
	case s.Within > 0 && age <= s.Within:
		f.keep(alive, "%s was there %s ago", what, age)
	case s.Within > 0:
		f.because("%s was there %s ago", what, age.Round(time.Second))
	case is == of:
		f.keep(alive, "%s names it", what)
	default:
		f.because("%s is %s", what, is)
	}
}

// textIn returns a text, the one in an array, or a score.
func textIn(answer *redis.Cmd) (text string, ok bool) {
	value := answer.Val()
	if array, is := value.([]any); is && len(array) == 1 {
		value = array[0]
	}
	if score, is := value.(float64); is {
		return strconv.FormatFloat(score, 'g', -1, 64), true
	}
	text, ok = value.(string)
	return text, ok
}

func (l *looking) channels(ctx context.Context, s *sign) error {
	names, of := l.by(s.key)
	for part := range slices.Chunk(names, pipelined) {
		var found map[string]int64
		err := l.Call(ctx, func(ctx context.Context) (err error) {
			found, err = subscribers(ctx, l.Client(), part)
			return err
		})
		for _, name := range part {
			for _, f := range of[name] {
				switch n, known := found[name]; {
				case err != nil || !known:
					f.keep(unknown, "channel %s: %v", name, err)
				case n > 0:
					f.keep(alive, "channel %s has subscribers", name)
				default:
					f.because("channel %s has no subscribers", name)
					f.observations = append(f.observations, observation{
						args:   []string{"PUBSUB", "NUMSUB", name},
						answer: valueText([]any{name, int64(0)}), cost: askCost,
					})
				}
			}
		}
		if err != nil && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// by expands a template for each candidate, and returns the names with those that have them.
func (l *looking) by(t *rules.Template) (names []string, of map[string][]*finding) {
	of = map[string][]*finding{}
	for f := range l.undecided {
		if name, ok := l.expand(f, t); ok {
			of[name] = append(of[name], f)
		}
	}
	return sorted(of), of
}

// documents reports for each candidate whether all conditions hold. In evidence of an end, a
// condition that fails is the better reason to keep, and comes first.
func (l *looking) documents(ctx context.Context, s *sign, told func(f *finding, hold bool)) error {
	ids, of := l.by(s.of)
	q := Query{Collection: s.Mongo.Collection, IDs: ids, ObjectIDs: l.objectIDs(s)}
	if len(q.IDs) == 0 {
		return nil
	}
	for _, c := range s.Mongo.All {
		q.Fields = append(q.Fields, c.Field)
	}
	found, err := l.source.Documents(ctx, q)
	if err != nil {
		return fmt.Errorf("%w: %w", errSource, err)
	}
	for id, candidates := range of {
		d, there := found[id]
		for _, f := range candidates {
			if !there {
				f.keep(unknown, "%s has no document %s", q.Collection, id)
				continue
			}
			hold, caution := hold(s.Mongo, d, f.at)
			if caution != "" && (hold || s != l.over) {
				f.keep(unknown, "%s: %s of document %s cannot tell", q.Collection, caution, id)
			}
			if f.verdict == "" {
				told(f, hold)
			}
		}
	}
	return nil
}

func (l *looking) evidence(ctx context.Context) error {
	s := l.over
	if s == nil {
		return nil
	}
	over := func(f *finding, is bool, format string, args ...any) {
		if is {
			f.because(format, args...)
		} else {
			f.keep(alive, format, args...)
		}
	}
	var asked []question
	for f := range l.undecided {
		text, ok := textOf(f.value[s.field])
		switch s.Kind {
		case "no_expiry":
			asked = append(asked, question{f: f, args: []string{"PEXPIRETIME", f.key}, told: func(answer *redis.Cmd) {
				switch at, err := answer.Int64(); {
				case err != nil:
					f.keep(unknown, "its expiry: %v", err)
				case at == -2:
					f.keep(absent, "it is gone")
				default:
					over(f, at == -1, "its expiry is %d", at)
				}
			}})
		case "missing":
			_, has := f.value[s.field]
			over(f, !has, "it has %s: %v", s.field, has)
		case "value":
			if !ok {
				f.keep(unreadable, "it has no %s", s.field)
			} else {
				over(f, slices.Contains(s.In, text), "%s is %q", s.field, text)
			}
		}
	}
	if s.Kind == "mongo" {
		return l.documents(ctx, s, func(f *finding, is bool) { over(f, is, "%s says that it is over: %v", s.Mongo.Collection, is) })
	}
	return l.observe(ctx, asked)
}

func (l *looking) ages(ctx context.Context) error {
	a := l.MinAge
	if a == nil {
		return nil
	}
	old := func(f *finding, age time.Duration) {
		if age <= a.Over {
			f.keep(young, "it is %s old", age)
		} else {
			f.because("it is %s old", age)
		}
	}
	since := func(f *finding, text string) {
		if at, ok := readTime(text, a.Unit); ok {
			old(f, f.at.Sub(at))
		} else {
			f.misread = text != ""
			f.keep(unreadable, "%q is no time in %s", text, a.Unit)
		}
	}
	var asked []question
	for f := range l.undecided {
		q := question{f: f}
		switch {
		case a.Field != "":
			text, _ := textOf(f.value[toPath(a.Field)])
			if number, ok := f.value[toPath(a.Field)].(json.Number); ok { // also 1.8e12
				text = number.String()
			}
			if since(f, text); a.Unit == "iso" && f.verdict == unreadable && withoutZone(text) {
				f.because("a time needs its zone, as in 2026-01-31T12:00:00Z")
			}
			continue
		case a.Score:
			q.args = []string{"ZSCORE", f.key, f.member}
		case a.FromTTL > 0:
			q.args = []string{"PEXPIRETIME", f.key}
		default:
			key, ok := l.expand(f, l.age)
			if !ok {
				continue
			}
			q.args = []string{"READ", key}
		}
		q.told = func(answer *redis.Cmd) {
			text, _ := textIn(answer)
			switch at, _ := answer.Val().(int64); {
			case answer.Err() == redis.Nil && a.IfMissing != "":
				f.firstSeen = true
				f.because("no %s: its age counts from the first look", q.args[1])
			case answer.Err() == redis.Nil && a.Score, at == -2:
				f.keep(absent, "it is gone")
			case answer.Err() == redis.Nil:
				f.keep(unreadable, "no %s", q.args[1])
			case answer.Err() != nil:
				f.keep(unreadable, "%s: %v", q.args[1], answer.Err())
			case at < 0:
				f.keep(unreadable, "it has no expiry")
			case a.FromTTL > 0:
				// Another writer may set another expiry, so it must have been seen for that long.
				f.doubted = true
				old(f, a.FromTTL-time.UnixMilli(at).Sub(f.at))
			default:
				since(f, text)
			}
		}
		asked = append(asked, q)
	}
	return l.observe(ctx, asked)
}
