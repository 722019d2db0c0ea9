package orphan

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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
	if s.Holds == "list" {
		return l.lists(ctx, s)
	}
	var asked []question
	for f := range l.undecided {
		key, ok := l.expand(f, s.key)
		if !ok {
			continue
		}
		var of string
		if s.of != nil {
			if of, ok = l.expand(f, s.of); !ok {
				continue
			}
		}
		q := question{f: f}
		switch {
		case s.Kind == "exists":
			q.args = []string{"EXISTS", key}
		case s.Kind == "json":
			q.args, q.size = []string{"GETRANGE", key, "0", strconv.Itoa(wholeBytes)}, likelyJSON
		case s.Kind == "field":
			q.args = []string{"HEXISTS", key, of}
		case s.Kind == "time":
			q.args = []string{"HGET", key, of}
		case s.Holds == "zset":
			q.args = []string{"ZSCORE", key, of}
		default:
			q.args = []string{"SISMEMBER", key, of}
		}
		what := strings.TrimSpace(key + " " + of)
		q.told = func(answer *redis.Cmd) { l.place(f, s, what, answer) }
		if s.Kind == "json" {
			q.told = func(answer *redis.Cmd) { named(f, s, key, of, answer) }
		}
		asked = append(asked, q)
	}
	if s.Kind != "time" {
		return l.observe(ctx, asked)
	}
	return l.measured(ctx, asked, mostTime, unknown, unknown) // a longer one is no time
}

// measured asks for fields of hashes whose bytes, asked for first, are within a bound.
func (l *looking) measured(ctx context.Context, asked []question, most int64, unread, beyond string) error {
	sizes, failed := make([]int64, len(asked)), make([]error, len(asked))
	var measure, short []question
	for i, q := range asked {
		for _, field := range q.args[2:] {
			measure = append(measure, question{args: []string{"HSTRLEN", q.args[1], field}, told: func(answer *redis.Cmd) {
				n, err := answer.Int64()
				sizes[i], failed[i] = sizes[i]+n, cmp.Or(failed[i], err)
			}})
		}
	}
	if err := ask(ctx, l, measure); err != nil {
		return err
	}
	for i, q := range asked {
		switch what := strings.Join(q.args[1:], " "); {
		case failed[i] != nil:
			q.f.keep(unread, "%s: %v", what, failed[i])
		case sizes[i] > most:
			q.f.keep(beyond, "%s has %d bytes to read, and may have %d", what, sizes[i], most)
		default:
			q.size = sizes[i]
			short = append(short, q)
		}
	}
	return l.observe(ctx, short)
}

func (l *looking) place(f *finding, s *sign, what string, answer *redis.Cmd) {
	text := replyText(answer)
	switch {
	case text == "_", text == ":0":
		f.because("no %s", what)
	case text[0] == '-':
		f.keep(unknown, "%s: %s", what, text[1:])
	case s.Within == 0:
		f.keep(alive, "%s is there", what)
	default:
		at, ok := readTime(text[1:], s.Unit)
		switch age := f.at.Sub(at); {
		case !ok:
			f.keep(unknown, "%s has %s, which is no time in %s", what, text[1:], s.Unit)
		case age <= s.Within:
			f.keep(alive, "%s was there %s ago", what, age)
		default:
			f.because("%s was there %s ago", what, age)
		}
	}
}

// likelyJSON (bytes) is how much a sign's object is taken to have.
const likelyJSON = 4 << 10

// named judges a field of another key's JSON.
func named(f *finding, s *sign, key, of string, answer *redis.Cmd) {
	text, err := answer.Text()
	object := readJSON(text)
	is, ok := textOf(fieldsOf(object, s.field)[s.field])
	switch at, read := readTime(is, s.Unit); {
	case err != nil:
		f.keep(unknown, "%s: %v", key, err)
	case text == "":
		f.because("no %s", key)
	case len(text) > wholeBytes || object == nil:
		f.keep(unknown, "%s is no JSON object of at most %d bytes", key, wholeBytes)
	case !ok || s.Within > 0 && !read:
		f.keep(unknown, "%s has no %s that can be read", key, s.field)
	case s.Within > 0 && f.at.Sub(at) <= s.Within:
		f.keep(alive, "%s of %s was %s ago", s.field, key, f.at.Sub(at))
	case s.Within == 0 && is == of:
		f.keep(alive, "%s names it in %s", key, s.field)
	default:
		f.because("%s of %s is %s", s.field, key, is)
	}
}

func (l *looking) channels(ctx context.Context, s *sign) error {
	var names []string
	of := map[string][]*finding{}
	for f := range l.undecided {
		if name, ok := l.expand(f, s.key); ok {
			if of[name] == nil {
				names = append(names, name)
			}
			of[name] = append(of[name], f)
		}
	}
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

// documents reports for each candidate whether all conditions hold. In evidence of an end, a
// condition that fails is the better reason to keep, and comes first.
func (l *looking) documents(ctx context.Context, s *sign, told func(f *finding, hold bool)) error {
	of := map[string][]*finding{}
	q := Query{Collection: s.Mongo.Collection, ObjectIDs: l.objectIDs(s)}
	for f := range l.undecided {
		id, ok := l.expand(f, s.of)
		if !ok {
			continue
		}
		if q.ObjectIDs {
			id = strings.ToLower(id)
		}
		if of[id] == nil {
			q.IDs = append(q.IDs, id)
		}
		of[id] = append(of[id], f)
	}
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
	var asked, missing []question
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
			q.told = func(answer *redis.Cmd) {
				switch text := replyText(answer); text[0] {
				case '_':
					f.keep(absent, "it is gone")
				case '=':
					since(f, text[1:])
				default:
					f.keep(unreadable, "its score: %s", text)
				}
			}
		case a.FromTTL > 0:
			q.args = []string{"PEXPIRETIME", f.key}
			q.told = func(answer *redis.Cmd) {
				switch at, err := answer.Int64(); {
				case err != nil:
					f.keep(unreadable, "its expiry: %v", err)
				case at == -2:
					f.keep(absent, "it is gone")
				case at < 0:
					f.keep(unreadable, "it has no expiry")
				default:
					// Another writer may set another expiry, so it must have been seen for that long.
					f.doubted = true
					old(f, a.FromTTL-time.UnixMilli(at).Sub(f.at))
				}
			}
		default:
			key, ok := l.expand(f, l.age)
			if !ok {
				continue
			}
			q.args = []string{"GETRANGE", key, "0", strconv.Itoa(mostTime)} // it could be of any size
			q.told = func(answer *redis.Cmd) {
				switch text, err := answer.Text(); {
				case err != nil:
					f.keep(unreadable, "%s: %v", key, err)
				case len(text) > mostTime:
					f.keep(unreadable, "%s is no time: it has more than %d bytes", key, mostTime)
				case text == "":
					missing = append(missing, l.withoutAge(f, key))
				default:
					since(f, text)
				}
			}
		}
		asked = append(asked, q)
	}
	if err := l.observe(ctx, asked); err != nil {
		return err
	}
	return l.observe(ctx, missing)
}

const mostTime = 64

func (l *looking) withoutAge(f *finding, key string) question {
	return question{f: f, args: []string{"EXISTS", key}, told: func(answer *redis.Cmd) {
		switch is := replyText(answer); {
		case is == ":0" && l.MinAge.IfMissing == "first_seen":
			f.firstSeen = true
			f.because("no %s: its age counts from the first look", key)
		case is == ":0":
			f.keep(unreadable, "no %s", key)
		default:
			f.keep(unreadable, "%s is no time", key)
		}
	}}
}

const (
	// about 0.4 ms of Redis' time for LPOS
	mostList = 10_000
	// bytes of an answer that take as long as one compared element
	elementBytes = 8
)

// LPOS visits elements one by one, so it is bounded: a longer list cannot show that it lacks one.
func (l *looking) lists(ctx context.Context, s *sign) error {
	type place struct {
		f       *finding
		key, of string
	}
	var places []place
	lengths := map[string]int64{}
	for f := range l.undecided {
		key, ok := l.expand(f, s.key)
		if !ok {
			continue
		}
		if of, ok := l.expand(f, s.of); ok {
			places = append(places, place{f, key, of})
			lengths[key] = 0
		}
	}
	var asked []question
	for _, key := range sorted(lengths) {
		asked = append(asked, question{args: []string{"LLEN", key}, told: func(answer *redis.Cmd) {
			n, err := answer.Int64()
			if err != nil { // LPOS reports another type
				n = 0
			}
			lengths[key] = n
		}})
	}
	if err := ask(ctx, l, asked); err != nil {
		return err
	}
	// The deleting script asks in the same order, so a list that has grown does not reach LPOS there.
	var short, found []question
	for _, p := range places {
		if lengths[p.key] <= mostList {
			short = append(short, isShort(p.f, p.key))
		}
	}
	if err := l.observe(ctx, short); err != nil {
		return err
	}
	for _, p := range places {
		if p.f.verdict != "" {
			continue
		}
		args := []string{"LPOS", p.key, p.of, "MAXLEN", strconv.Itoa(mostList)}
		compared := elementBytes * min(lengths[p.key], mostList)
		found = append(found, question{f: p.f, args: args, size: compared, told: func(answer *redis.Cmd) {
			what := p.key + " " + p.of
			switch text := replyText(answer); {
			case text[0] == '-':
				p.f.keep(unknown, "%s: %s", what, text[1:])
			case text != "_":
				p.f.keep(alive, "%s is there", what)
			case lengths[p.key] > mostList:
				p.f.keep(unknown, "%s has %d elements, and %d are looked at", p.key, lengths[p.key], mostList)
			default:
				p.f.because("no %s", what)
				p.f.observations = append(p.f.observations,
					observation{args: args, answer: "_", cost: askCost + int(compared)/hashRate})
			}
		}})
	}
	return ask(ctx, l, found)
}

func isShort(f *finding, key string) question {
	return question{f: f, args: []string{"LINDEX", key, strconv.Itoa(mostList)}, told: func(answer *redis.Cmd) {
		switch is := replyText(answer); {
		case is[0] == '-':
			f.keep(unknown, "%s: %s", key, is[1:])
		case is != "_":
			f.keep(unknown, "%s has more than %d elements", key, mostList)
		}
	}}
}
