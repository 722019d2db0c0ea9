package orphan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/together"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

type caller interface {
	Call(ctx context.Context, f func(ctx context.Context) error) error
	Client() redis.UniversalClient
	PageSize() int
}

// Bounds of one pipeline: about 0.3 ms of Redis' time. Redis serves nobody else during it.
const (
	pipelined = 500       // commands
	answers   = 256 << 10 // bytes of answers, as far as known
)

// Longer values are not read: one answer would hold the server up, and a hash's fields are compared
// whole at the delete.
const (
	mostValue = 4 << 20
	mostField = 256 << 10
	// shorter values are read without being measured first
	shortBytes = 512
)

// Verdicts of a look. All but condemned keep, and are reasons of orphan_kept_total.
const (
	condemned  = "condemned"
	alive      = "alive" // a sign of life, or evidence that it is not over
	young      = "young"
	unreadable = "unreadable" // Read does not fit, or its age cannot be read
	unknown    = "unknown"    // a sign or the evidence has no answer
	foreign    = "foreign"    // its name does not fit Only, or its type is not Type
	absent     = "absent"     // gone, or its parent exists
	large      = "large"      // too large to compare
)

var errSource = errors.New("orphan: source does not answer")

var errClock = errors.New("orphan: the server's clock was set during the pass")

type finding struct {
	candidate
	verdict string    // "": undecided
	why     []string  // each sign and its answer
	at      time.Time // start of the look, by the server's clock

	size      int64          // of a hash's field (bytes)
	value     map[string]any // fields that the rule reads
	lacks     map[fieldPath]bool
	firstSeen bool  // its age counts from its mark
	doubted   bool  // so does this one's: its age comes from its expiry
	expires   int64 // of a hash's field (ms); 0: never
	// of other rules that cover it
	othersGrace time.Duration
	// Of a condemned one:
	fingerprint  string
	observations []observation
	pieces       []string // of large values: a digest of each key
	gone         []string
	keyed        map[string][]observation
}

// itself drops the findings, which take much memory.
func (f *finding) itself() *candidate {
	c := f.candidate
	return &c
}

func (f *finding) keep(verdict, format string, args ...any) {
	f.verdict = verdict
	f.because(format, args...)
}

func (f *finding) because(format string, args ...any) {
	f.why = append(f.why, rules.Spell(fmt.Sprintf(format, args...)))
}

func (f *finding) isWithout(field fieldPath) {
	if f.lacks == nil {
		f.lacks = map[fieldPath]bool{}
	}
	f.lacks[field] = true
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
	return r.lookFor(ctx, c, source, home, page, (*looking).identify)
}

// glance does not read the candidates: those without a sign of life stay undecided.
func (r *rule) glance(
	ctx context.Context, c caller, source Source, home server, page []*candidate,
) ([]*finding, error) {
	return r.lookFor(ctx, c, source, home, page)
}

func (r *rule) lookFor(
	ctx context.Context, c caller, source Source, home server, page []*candidate,
	then ...func(*looking, context.Context) error,
) ([]*finding, error) {
	found, err := r.lookAlone(ctx, c, source, home, page, then...)
	if err != nil || len(r.others) == 0 {
		return found, err
	}
	l := &looking{rule: r, caller: c, source: source, page: found}
	return found, l.hearOthers(ctx, home, then...)
}

func (r *rule) lookAlone(
	ctx context.Context,
	c caller,
	source Source,
	home server,
	page []*candidate,
	then ...func(*looking, context.Context) error,
) ([]*finding, error) {
	l := &looking{rule: r, caller: c, source: source}
	at, err := now(ctx, c, home)
	if err != nil {
		return nil, err
	}
	for _, each := range page {
		f := &finding{candidate: *each, at: at}
		if l.known(f) {
			f.values = maps.Clone(f.values)
			for name, value := range f.rest.Values {
				f.values[name] = string(value)
			}
		}
		if !r.ours(each) {
			f.keep(foreign, "its name is not what only and not say")
		}
		l.page = append(l.page, f)
	}
	steps := []func(*looking, context.Context) error{
		(*looking).parents, (*looking).types, (*looking).readValues, (*looking).signs,
		(*looking).evidence, (*looking).premised, (*looking).ages,
	}
	for _, step := range append(steps, then...) {
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
func (l *looking) ask(ctx context.Context, questions []question) error {
	for _, part := range pipelines(questions) {
		cmds := make([]*redis.Cmd, len(part))
		err := l.Call(ctx, func(ctx context.Context) error {
			pipe := l.Client().Pipeline()
			for i, q := range part {
				args := make([]any, len(q.args))
				for j, a := range q.args {
					args[j] = a
				}
				cmds[i] = pipe.Do(ctx, args...)
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
	return l.ask(ctx, questions)
}

func observed(args []string, answer *redis.Cmd) observation {
	return observation{args: args, answer: replyText(answer), bytes: bytesOf(answer)}
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

// parents drops candidates whose parent exists, which is judged by itself. A member can be missing
// only from a key that exists.
func (l *looking) parents(ctx context.Context) error {
	var asked []question
	for f := range l.undecided {
		if !f.alone {
			continue
		}
		// With a rest, the rule itself removed it, perhaps as the last member.
		if l.candidates == nil && f.rest == nil {
			asked = append(asked, question{f: f, args: []string{"EXISTS", f.key}, told: func(answer *redis.Cmd) {
				if replyText(answer) != ":1" {
					f.keep(unknown, "%s is not there, which it is missing from", f.key)
				}
			}})
		}
		q := question{f: f, args: claimant{l.rule, &f.candidate}.presence()}
		q.told = func(answer *redis.Cmd) {
			if there := replyText(answer); f.verdict == "" && there != "_" && there != ":0" {
				f.keep(absent, "its parent is there")
			}
		}
		asked = append(asked, q)
	}
	return l.observe(ctx, asked)
}

func (r *rule) membership(f *finding) []string {
	switch {
	case r.Members.ZSet != "":
		return []string{"ZSCORE", f.key, f.member}
	case r.Members.Set != "":
		return []string{"SISMEMBER", f.key, f.member}
	}
	return []string{"HGET", f.key, f.member}
}

func (l *looking) types(ctx context.Context) error {
	var asked []question
	for f := range l.undecided {
		if l.Type == "" || f.alone {
			continue
		}
		asked = append(asked, question{f: f, args: []string{"TYPE", f.key}, told: func(answer *redis.Cmd) {
			switch is, err := answer.Text(); {
			case err != nil:
				f.keep(unknown, "its type: %v", err)
			case is != l.Type:
				f.keep(foreign, "its type is %s", is)
			}
		}})
	}
	return l.observe(ctx, asked)
}
