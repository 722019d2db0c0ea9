package orphan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// A caller makes calls to Redis on behalf of a look: a janitor.Pass, or a plan.
type caller interface {
	Call(ctx context.Context, f func(ctx context.Context) error) error
	Client() redis.UniversalClient
	PageSize() int
}

// pipelined is how many commands one pipeline has at most: about 0.3 ms of Redis' time.
const pipelined = 500

// What a look finds about a candidate. All but condemned keep, and are reasons of
// orphan_kept_total.
const (
	condemned  = "condemned"
	alive      = "alive"      // a sign of life is there, or the evidence says that it is not over
	young      = "young"      // not older than MinAge.Over
	unreadable = "unreadable" // it is not what Read says, or its age cannot be read
	unknown    = "unknown"    // a sign or the evidence cannot tell
	foreign    = "foreign"    // its name is not what Only says
	absent     = "absent"     // it is gone, or stands for a parent that is there
)

// errSource wraps an error of the Source.
var errSource = errors.New("orphan: source does not answer")

// A finding is what a look says about one candidate.
type finding struct {
	candidate
	verdict string    // "" while nothing is decided
	why     []string  // for people: each sign, and what it answered
	at      time.Time // when the look began, by the server's clock

	value     map[string]any // what the candidate holds, as far as the rule reads it
	firstSeen bool           // its age counts from its mark
	// Of a condemned one: what it was, what was asked, and the keys that go with it.
	fingerprint  string
	observations []observation
	gone         []string
}

func (f *finding) keep(verdict, format string, args ...any) {
	f.verdict = verdict
	f.because(format, args...)
}

func (f *finding) because(format string, args ...any) {
	f.why = append(f.why, fmt.Sprintf(format, args...))
}

// looking is one look at a page of candidates.
type looking struct {
	*rule
	caller
	source Source
	page   []*finding
}

// look judges candidates, 500 at most, by the time of the server. The error is for when nothing can
// be said of them.
func (r *rule) look(ctx context.Context, c caller, source Source, home server, page []*candidate) ([]*finding, error) {
	l := &looking{rule: r, caller: c, source: source}
	at, err := now(ctx, c, home)
	if err != nil {
		return nil, err
	}
	for _, each := range page {
		f := &finding{candidate: *each, at: at}
		if !r.ours(each) {
			f.keep(foreign, "its name is not what only says")
		}
		l.page = append(l.page, f)
	}
	for _, step := range []func(context.Context) error{l.parents, l.readValues, l.signs, l.evidence, l.ages, l.identify} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return l.page, nil
}

// now is the time of the server that has the worker's own keys.
func now(ctx context.Context, c caller, home server) (at time.Time, err error) {
	err = c.Call(ctx, func(ctx context.Context) error {
		at, err = serverTime(ctx, home)
		return err
	})
	return at, err
}

// question is a command about one candidate, and what is done with its answer.
type question struct {
	f    *finding
	args []string
	told func(answer *redis.Cmd)
}

// ask sends the commands of all candidates that are not decided, in pipelines. What Redis answers
// with an error is an answer.
func (l *looking) ask(ctx context.Context, questions []question) error {
	for part := range slices.Chunk(questions, pipelined) {
		var cmds []redis.Cmder
		err := l.Call(ctx, func(ctx context.Context) (err error) {
			cmds, err = l.Client().Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, q := range part {
					args := make([]any, len(q.args))
					for i, a := range q.args {
						args[i] = a
					}
					pipe.Do(ctx, args...)
				}
				return nil
			})
			return err
		})
		for i, cmd := range cmds {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !answered(err) {
				return err
			}
			part[i].told(cmd.(*redis.Cmd))
		}
		if len(cmds) == 0 && err != nil {
			return err
		}
	}
	return nil
}

// observe is ask of what the deleting script has to ask again.
func (l *looking) observe(ctx context.Context, questions []question) error {
	for i, q := range questions {
		questions[i].told = func(answer *redis.Cmd) {
			q.f.observations = append(q.f.observations, observation{q.args, replyText(answer)})
			if q.told != nil {
				q.told(answer)
			}
		}
	}
	return l.ask(ctx, questions)
}

// undecided are the candidates that nothing has decided about yet.
func (l *looking) undecided(yield func(*finding) bool) {
	for _, f := range l.page {
		if f.verdict == "" && !yield(f) {
			return
		}
	}
}

// expand makes the name that a template stands for. A candidate that lacks a variable is
// unreadable.
func (l *looking) expand(f *finding, t *template) (string, bool) {
	name, ok := t.expand(f.values)
	if ok && utf8.ValidString(name) {
		return name, true
	}
	f.keep(unreadable, "%s cannot be filled in", t.text)
	return "", false
}

// parents leaves out candidates whose parent is there, after all: that one is looked at by itself.
// A member can be missing only from a key that is there.
func (l *looking) parents(ctx context.Context) error {
	var asked []question
	for f := range l.undecided {
		if !f.alone {
			continue
		}
		q := question{f: f, args: []string{"EXISTS", f.key}}
		if l.candidates == nil {
			asked = append(asked, question{f: f, args: q.args, told: func(answer *redis.Cmd) {
				if replyText(answer) != ":1" {
					f.keep(unknown, "%s is not there, which it is missing from", f.key)
				}
			}})
			q.args = l.membership(f)
		}
		q.told = func(answer *redis.Cmd) {
			if there := replyText(answer); f.verdict == "" && there != "_" && there != ":0" {
				f.keep(absent, "its parent is there")
			}
		}
		asked = append(asked, q)
	}
	return l.observe(ctx, asked)
}

// membership asks whether a member is there.
func (r *rule) membership(f *finding) []string {
	switch {
	case r.Members.ZSet != "":
		return []string{"ZSCORE", f.key, f.member}
	case r.Members.Set != "":
		return []string{"SISMEMBER", f.key, f.member}
	}
	return []string{"HGET", f.key, f.member}
}

// readValues reads what the candidates hold, as far as the rule needs it, and binds variables.
func (l *looking) readValues(ctx context.Context) error {
	if l.Read == "" {
		return nil
	}
	var asked []question
	for f := range l.undecided {
		if f.alone {
			if len(l.fields) > 0 {
				f.keep(unreadable, "its parent is gone, and with it what %v says", l.fields)
			}
			continue
		}
		args := []string{"GET", f.key}
		if l.Read == "hash" {
			args = []string{"HMGET", f.key}
			for _, at := range l.fields {
				args = append(args, string(at))
			}
			if len(l.fields) == 0 {
				continue
			}
		}
		asked = append(asked, question{f: f, args: args, told: func(answer *redis.Cmd) { l.readValue(f, answer) }})
	}
	return l.observe(ctx, asked)
}

func (l *looking) readValue(f *finding, answer *redis.Cmd) {
	value, err := answer.Result()
	switch v := value.(type) {
	case string:
		if l.Read == "text" {
			f.value = map[string]any{}
		} else if f.value = readJSON(v); f.value == nil {
			f.keep(unreadable, "it is no JSON object")
			return
		}
	case []any:
		f.value = map[string]any{}
		for i, each := range v {
			if each != nil {
				f.value[string(l.fields[i])] = each
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
}

// field is a field of a candidate's value. A hash has no fields in fields.
func (l *looking) field(f *finding, at fieldPath) string {
	if l.Read == "hash" {
		text, _ := f.value[string(at)].(string)
		return text
	}
	return fieldOf(f.value, at)
}

// signs looks for signs of life, one after the other: most candidates are decided by the first.
func (l *looking) signs(ctx context.Context) error {
	for i := range l.life {
		s := &l.life[i]
		var err error
		switch s.kind {
		case "mongo":
			err = l.documents(ctx, s, func(f *finding, over bool) {
				if over {
					f.keep(alive, "%s has it", s.mongo.Collection)
				} else {
					f.because("%s says otherwise", s.mongo.Collection)
				}
			})
		case "value":
			for f := range l.undecided {
				switch text := l.field(f, s.field); {
				case text == "":
					f.keep(unreadable, "it has no %s", s.field)
				case slices.Contains(s.in, text):
					f.keep(alive, "%s is %s", s.field, text)
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
	}
	return nil
}

// places asks Redis for a key, a field or a member.
func (l *looking) places(ctx context.Context, s *sign) error {
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
		case s.kind == "exists":
			q.args = []string{"EXISTS", key}
		case s.kind == "field":
			q.args = []string{"HEXISTS", key, of}
		case s.kind == "score" || s.zset:
			q.args = []string{"ZSCORE", key, of}
		default:
			q.args = []string{"SISMEMBER", key, of}
		}
		what := strings.TrimSpace(key + " " + of)
		q.told = func(answer *redis.Cmd) { l.place(f, s, what, answer) }
		asked = append(asked, q)
	}
	return l.observe(ctx, asked)
}

func (l *looking) place(f *finding, s *sign, what string, answer *redis.Cmd) {
	text := replyText(answer)
	switch {
	case text == "_", text == ":0":
		f.because("no %s", what)
	case text[0] == '-':
		f.keep(unknown, "%s: %s", what, text[1:])
	case s.kind != "score":
		f.keep(alive, "%s is there", what)
	default:
		at, ok := readTime(text[1:], s.score.Unit)
		switch age := f.at.Sub(at); {
		case !ok:
			f.keep(unknown, "%s has the score %s, which is no time in %s", what, text[1:], s.score.Unit)
		case age <= s.score.Within:
			f.keep(alive, "%s was there %s ago", what, age)
		default:
			f.because("%s was there %s ago", what, age)
		}
	}
}

// channels asks all nodes for subscribers.
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
						answer: valueText([]any{name, int64(0)}),
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

// documents asks the Source, and tells of each candidate whether all conditions hold. A document
// that is not there, or whose field cannot tell, keeps.
func (l *looking) documents(ctx context.Context, s *sign, told func(f *finding, hold bool)) error {
	of := map[string][]*finding{}
	q := Query{Collection: s.mongo.Collection, ObjectIDs: l.objectIDs(s)}
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
	for _, c := range s.mongo.All {
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
			hold := true
			for _, c := range s.mongo.All {
				holds, known := c.holds(d, f.at)
				if !known {
					f.keep(unknown, "%s: %s of document %s cannot tell", q.Collection, c.Field, id)
					break
				}
				hold = hold && holds
			}
			if f.verdict == "" {
				told(f, hold)
			}
		}
	}
	return nil
}

// evidence looks for what says that something is over.
func (l *looking) evidence(ctx context.Context) error {
	s := l.over
	if s == nil {
		return nil
	}
	if s.kind == "mongo" {
		return l.documents(ctx, s, func(f *finding, over bool) {
			if over {
				f.because("%s says that it is over", s.mongo.Collection)
			} else {
				f.keep(alive, "%s does not say that it is over", s.mongo.Collection)
			}
		})
	}
	for f := range l.undecided {
		if text := l.field(f, s.field); slices.Contains(s.in, text) {
			f.because("%s is %s", s.field, text)
		} else {
			f.keep(alive, "%s is %q", s.field, text)
		}
	}
	return nil
}

// ages keeps what is young.
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
			f.keep(unreadable, "%q is no time in %s", text, a.Unit)
		}
	}
	var asked []question
	for f := range l.undecided {
		q := question{f: f}
		switch {
		case a.Field != "":
			text := l.field(f, toPath(a.Field))
			if number, ok := valueOf(f.value, toPath(a.Field)).(json.Number); ok { // also 1.8e12
				text = number.String()
			}
			since(f, text)
			continue
		case a.Score && f.alone, a.FromTTL > 0 && f.alone:
			f.keep(unreadable, "its parent is gone, and with it its age")
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
					old(f, a.FromTTL-time.UnixMilli(at).Sub(f.at))
				}
			}
		default:
			key, ok := l.expand(f, l.age)
			if !ok {
				continue
			}
			q.args = []string{"GET", key}
			q.told = func(answer *redis.Cmd) {
				text, err := answer.Text()
				switch {
				case err == nil:
					since(f, text)
				case errors.Is(err, redis.Nil) && a.IfMissing == "first_seen":
					f.firstSeen = true
					f.because("no %s: its age counts from the first look", key)
				default:
					f.keep(unreadable, "%s: %v", key, err)
				}
			}
		}
		asked = append(asked, q)
	}
	return l.observe(ctx, asked)
}

// identify takes the fingerprints of what is left, and finds the keys that go along. A candidate
// that is decided by nothing is condemned.
func (l *looking) identify(ctx context.Context) error {
	keys := map[string][]*finding{} // that are part of a candidate's fingerprint
	var names []string
	var asked []question
	for f := range l.undecided {
		add := func(key string) {
			if keys[key] == nil {
				names = append(names, key)
			}
			if !slices.Contains(keys[key], f) { // two patterns found it, or SCAN gave it twice
				keys[key] = append(keys[key], f)
			}
		}
		switch {
		case f.alone:
		case l.candidates != nil:
			add(f.key)
		default:
			asked = append(asked, question{f: f, args: l.membership(f), told: func(answer *redis.Cmd) {
				if there := replyText(answer); there == "_" || there == ":0" {
					f.keep(absent, "it is gone")
				}
			}})
		}
		for _, t := range l.exact {
			if key, ok := l.expand(f, t); ok {
				add(key)
			}
		}
		for _, key := range f.related {
			add(key)
		}
	}
	if err := l.observe(ctx, asked); err != nil {
		return err
	}
	found, err := l.identities(ctx, names)
	if err != nil {
		return err
	}
	for _, key := range names {
		for _, f := range keys[key] {
			if f.verdict != "" {
				continue
			}
			id := found[key]
			if id.exists {
				f.gone = append(f.gone, key)
			} else if key == f.key {
				f.keep(absent, "it is gone")
			}
			f.observations = append(f.observations, id.observations...)
		}
	}
	for f := range l.undecided {
		if f.alone && len(f.gone) == 0 {
			f.keep(absent, "its related keys are gone")
			continue
		}
		f.verdict, f.fingerprint = condemned, l.fingerprint(f)
	}
	return nil
}

// fingerprint tells whether a candidate is the same thing, judged by the same rule. It leaves out
// related keys that a pattern found, unless there is nothing else.
func (l *looking) fingerprint(f *finding) string {
	var s strings.Builder
	s.WriteString(l.meaning + "\n")
	for _, o := range f.observations {
		if len(o.args) > 1 && (f.alone || !slices.Contains(f.related, o.args[1])) {
			s.WriteString(strings.Join(o.args, " ") + " " + o.answer + "\n")
		}
	}
	return digest(s.String())[:16]
}

// What is no larger than this is compared whole, else by its size and by parts of it.
const (
	wholeBytes    = 64 << 10
	wholeElements = 512
)

// identity is what a key is.
type identity struct {
	exists       bool
	kind         string
	size         int64
	observations []observation
}

var sizeOf = map[string]string{
	"string": "STRLEN", "hash": "HLEN", "list": "LLEN", "set": "SCARD", "zset": "ZCARD", "stream": "XLEN",
}

// partsOf are the commands for parts of what is too large. A SCAN begins with the same elements as long as
// there are the same; after that it nearly always begins with others.
var partsOf = map[string][][]string{
	"list":   {{"LRANGE", "0", "127"}, {"LRANGE", "-128", "-1"}},
	"zset":   {{"ZRANGE", "0", "127"}, {"ZRANGE", "-128", "-1"}},
	"set":    {{"SSCAN", "0", "COUNT", "128"}},
	"hash":   {{"HSCAN", "0", "COUNT", "128"}},
	"stream": {{"XRANGE", "-", "+", "COUNT", "1"}, {"XREVRANGE", "+", "-", "COUNT", "1"}},
}

// identities reads type, expiry, size, and what is not too large whole, or parts of it.
func (l *looking) identities(ctx context.Context, keys []string) (map[string]*identity, error) {
	found := make(map[string]*identity, len(keys))
	var asked []question
	observe := func(key string, told func(*identity, *redis.Cmd), args ...string) {
		asked = append(asked, question{args: args, told: func(answer *redis.Cmd) {
			id := found[key]
			id.observations = append(id.observations, observation{args, replyText(answer)})
			if told != nil {
				told(id, answer)
			}
		}})
	}
	for _, key := range keys {
		found[key] = &identity{}
		observe(key, func(id *identity, answer *redis.Cmd) {
			id.kind, _ = answer.Text()
			id.exists = id.kind != "" && id.kind != "none"
		}, "TYPE", key)
		observe(key, nil, "PEXPIRETIME", key)
	}
	if err := l.ask(ctx, asked); err != nil {
		return nil, err
	}
	asked = nil
	for _, key := range keys {
		if size := sizeOf[found[key].kind]; size != "" {
			observe(key, func(id *identity, answer *redis.Cmd) { id.size, _ = answer.Int64() }, size, key)
		}
	}
	if err := l.ask(ctx, asked); err != nil {
		return nil, err
	}
	asked = nil
	for _, key := range keys {
		switch id := found[key]; {
		case id.kind == "string" && id.size <= wholeBytes:
			observe(key, nil, "GET", key)
		case id.kind == "string":
			observe(key, nil, "GETRANGE", key, "0", strconv.Itoa(wholeBytes/2))
			half := int(id.size) / 2
			observe(key, nil, "GETRANGE", key, strconv.Itoa(half-wholeBytes/4), strconv.Itoa(half+wholeBytes/4))
			observe(key, nil, "GETRANGE", key, strconv.Itoa(-wholeBytes/2), "-1")
		case id.exists && id.size <= wholeElements:
			observe(key, nil, "DUMP", key)
		default:
			for _, part := range partsOf[id.kind] {
				observe(key, nil, append([]string{part[0], key}, part[1:]...)...)
			}
		}
	}
	return found, l.ask(ctx, asked)
}
