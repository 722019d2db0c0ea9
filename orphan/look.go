package orphan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

type caller = proof.Caller

// Bounds of one pipeline: about 0.3 ms of Redis' time. Redis serves nobody else during it.
const (
	pipelined = 500       // commands
	answers   = 256 << 10 // bytes of answers, as far as known
	pageOf    = pipelined
)

const (
	// Longer values, fields and members are not read.
	wholeBytes = 64 << 10
	// shorter values are read without being measured first
	shortBytes = 512
)

// Verdicts of a look. All but condemned keep, and are reasons of orphan_kept_total.
const (
	condemned  = "condemned"
	alive      = "alive" // a sign of life, or evidence that it is not over
	young      = "young"
	unreadable = "unreadable" // Read does not fit, or its age cannot be read
	unknown    = "unknown"    // a sign, the evidence or the size has no answer
	foreign    = "foreign"    // its name does not fit Only, or its type is not Type
	absent     = "absent"     // gone
	large      = "large"      // too large to compare
)

var errSource = errors.New("orphan: source does not answer")

type finding struct {
	candidate
	verdict string    // "": undecided
	why     []string  // each sign and its answer
	by      int       // index of the sign of life that keeps it, plus 1; 0: none
	at      time.Time // start of the look, by the server's clock

	value     map[fieldPath]any // fields that the rule reads, and that it has
	misread   bool              // what should be a time is none
	firstSeen bool              // its age counts from its mark
	doubted   bool              // so does this one's: its age comes from its expiry
	// Of a condemned one:
	fingerprint  string
	observations []observation
	expires      int64 // ms: of a key, or of a field of a hash; -1: never
	keyExpires   int64 // of the key that has the member
}

func (f *finding) keep(verdict, format string, args ...any) {
	f.verdict = verdict
	f.because(format, args...)
}

func (f *finding) because(format string, args ...any) {
	f.why = append(f.why, rules.Spell(fmt.Sprintf(format, args...)))
}

type looking struct {
	*rule
	caller
	source Source
	page   []*finding
}

// look judges at most 500 candidates, by the server's time. After an error nothing is known.
func (r *rule) look(
	ctx context.Context, c caller, source Source, home server, page []*candidate,
) ([]*finding, error) {
	l := &looking{rule: r, caller: c, source: source}
	at, err := now(ctx, c, home)
	if err != nil {
		return nil, err
	}
	for _, each := range page {
		f := &finding{candidate: *each, at: at, expires: -1, keyExpires: -1}
		f.values = maps.Clone(f.values)
		if !r.ours(each) {
			f.keep(foreign, "its name is not what only and not say")
		}
		l.page = append(l.page, f)
	}
	for _, step := range []func(*looking, context.Context) error{
		(*looking).types, (*looking).readValues, (*looking).signs, (*looking).evidence,
		(*looking).premised, (*looking).ages, (*looking).identify,
	} {
		if err := step(l, ctx); err != nil {
			return nil, err
		}
	}
	return l.page, nil
}

func now(ctx context.Context, c caller, home server) (at time.Time, err error) {
	err = c.Call(ctx, func(ctx context.Context) error {
		at, err = serverTime(ctx, home)
		return err
	})
	return at, err
}

type question struct {
	f    *finding
	args []string
	told func(answer *redis.Cmd)
	size int64 // of the answer (bytes); 0: small
}

func pipelines(questions []question) (parts [][]question) {
	from, size := 0, int64(0)
	for i, q := range questions {
		if i > from && (i-from == pipelined || size+q.size > answers) {
			parts, from, size = append(parts, questions[from:i]), i, 0
		}
		size += q.size
	}
	if from < len(questions) {
		parts = append(parts, questions[from:])
	}
	return parts
}

// ask sends the commands in pipelines. An error reply from Redis is an answer.
func ask(ctx context.Context, c caller, questions []question) error {
	for _, part := range pipelines(questions) {
		cmds := make([]*redis.Cmd, len(part))
		err := c.Call(ctx, func(ctx context.Context) error {
			pipe := c.Client().Pipeline()
			for i, q := range part {
				cmds[i] = pipe.Do(ctx, anys(q.args)...)
			}
			return together.Exec(ctx, pipe)
		})
		if err != nil {
			return err
		}
		for i, cmd := range cmds {
			if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) && !together.Answered(err) {
				return err
			}
			part[i].told(cmd)
		}
	}
	return nil
}

func anys(texts []string) []any {
	all := make([]any, len(texts))
	for i, text := range texts {
		all[i] = text
	}
	return all
}

// call asks with a script, which a server may not know yet: the arguments of a question are the
// number of keys, keys, and arguments.
func call(ctx context.Context, c caller, script string, questions []question) error {
	var unknown []question
	calls := make([]question, len(questions))
	for i, q := range questions {
		calls[i] = question{args: append([]string{"EVALSHA", digest(script)}, q.args...), told: func(answer *redis.Cmd) {
			if redis.HasErrorPrefix(answer.Err(), "NOSCRIPT") {
				unknown = append(unknown, question{args: append([]string{"EVAL", script}, q.args...), told: q.told})
			} else {
				q.told(answer)
			}
		}}
	}
	if err := ask(ctx, c, calls); err != nil {
		return err
	}
	return ask(ctx, c, unknown)
}

// observe is ask for commands that the deleting script repeats.
func (l *looking) observe(ctx context.Context, questions []question) error {
	for i, q := range questions {
		questions[i].told = func(answer *redis.Cmd) {
			q.f.observations = append(q.f.observations, observed(q.args, answer))
			if q.told != nil {
				q.told(answer)
			}
		}
	}
	return ask(ctx, l, questions)
}

func observed(args []string, answer *redis.Cmd) observation {
	return observation{args: args, answer: replyText(answer), cost: askCost + bytesOf(answer)/hashRate}
}

func (l *looking) undecided(yield func(*finding) bool) {
	for _, f := range l.page {
		if f.verdict == "" && !yield(f) {
			return
		}
	}
}

// expand fills in a template. A candidate that lacks a variable is unreadable.
func (l *looking) expand(f *finding, t *rules.Template) (string, bool) {
	name, ok := t.Expand(f.values)
	if ok {
		return name, true
	}
	f.keep(unreadable, "%s cannot be filled in", t.String())
	return "", false
}

func (r *rule) removal(f *finding) []raw {
	command := "HDEL"
	switch {
	case r.Members == nil:
		return nil
	case r.Members.ZSet != "":
		command = "ZREM"
	case r.Members.Set != "":
		command = "SREM"
	}
	return raws([]string{command, f.key, f.member})
}

func (l *looking) types(ctx context.Context) error {
	if l.Type == "" {
		return nil
	}
	var asked []question
	for f := range l.undecided {
		asked = append(asked, question{f: f, args: []string{"TYPE", f.key}, told: func(answer *redis.Cmd) {
			switch is, err := answer.Text(); {
			case err != nil:
				f.keep(unknown, "its type: %v", err)
			case is == none:
				f.keep(absent, "it is gone")
			case is != l.Type:
				f.keep(foreign, "its type is %s", is)
			}
		}})
	}
	return l.observe(ctx, asked)
}

// fingerprint identifies a candidate and the rule that judged it.
func (l *looking) fingerprint(f *finding) string {
	var s strings.Builder
	s.WriteString(l.meaning + "\n")
	for _, o := range f.observations {
		s.WriteString(strings.Join(o.args, " ") + " " + o.answer + "\n")
	}
	return digest(s.String())
}
