package orphan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	answers   = 256 << 10 // bytes of names
	pageOf    = pipelined
)

// shortBytes: shorter values are read without being measured first.
const shortBytes = 512

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

	value     map[string]any // fields that the rule reads, and that it has
	misread   bool           // what should be a time is none
	firstSeen bool           // its age counts from its mark
	doubted   bool           // so does this one's: its age comes from its expiry
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

func now(ctx context.Context, c caller, s server) (at time.Time, err error) {
	err = c.Call(ctx, func(ctx context.Context) (err error) {
		at, err = s.client.Time(ctx).Result()
		return err
	})
	if err != nil {
		return at, fmt.Errorf("orphan: time of server %s: %w", s.addr, err)
	}
	return at, nil
}

type question struct {
	f    *finding
	args []string
	told func(answer *redis.Cmd)
}

// ask sends the commands in pipelines. An error reply from Redis is an answer.
func ask(ctx context.Context, c caller, questions []question) error {
	for part := range slices.Chunk(questions, pipelined) {
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

// own are the questions that same.lua answers.
var own = map[string]int{"IDENTITY": 0, "READ": 0, "FIELDS": 0, "LISTED": 400}

// observe asks what the deleting script asks again.
func (l *looking) observe(ctx context.Context, questions []question) error {
	var commands, probes []question
	for _, q := range questions {
		again := q
		again.told = func(answer *redis.Cmd) {
			q.f.observations = append(q.f.observations, observed(q.args, answer))
			q.told(answer)
		}
		if _, is := own[q.args[0]]; is {
			probes = append(probes, again)
		} else {
			commands = append(commands, again)
		}
	}
	if err := ask(ctx, l, commands); err != nil {
		return err
	}
	return l.probe(ctx, probes)
}

// probe asks with a script, which on one server answers many questions in a call, and ends before
// that takes long.
func (l *looking) probe(ctx context.Context, questions []question) error {
	most, size := pipelined, pipelined
	if _, several := l.Client().(*redis.ClusterClient); several {
		most, size = 50, 1
	}
	for len(questions) > 0 {
		n, bytes := 0, 0
		for ; n < min(len(questions), most) && bytes < answers; n++ {
			bytes += len(strings.Join(questions[n].args, ""))
		}
		var calls, left []question
		for part := range slices.Chunk(questions[:n], size) {
			args := []string{"1", part[0].args[1]}
			for _, q := range part {
				args = append(append(args, strconv.Itoa(len(q.args))), q.args...)
			}
			calls = append(calls, question{args: args, told: func(answer *redis.Cmd) {
				said, err := answer.Slice()
				for i, q := range part {
					if err == nil && i >= len(said) {
						left = append(left, q)
					} else {
						q.told(answerOf(ctx, said, i, err))
					}
				}
			}})
		}
		if err := call(ctx, l, askScript, calls); err != nil {
			return err
		}
		questions = append(left, questions[n:]...)
	}
	return nil
}

func answerOf(ctx context.Context, said []any, i int, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	if err != nil {
		cmd.SetErr(err)
		return cmd
	}
	switch text, _ := said[i].(string); {
	case said[i] == nil:
		cmd.SetErr(redis.Nil)
	case strings.HasPrefix(text, "-"):
		cmd.SetErr(errors.New(text[1:]))
	default:
		cmd.SetVal(said[i])
	}
	return cmd
}

func observed(args []string, answer *redis.Cmd) observation {
	return observation{args: args, answer: replyText(answer), cost: askCost + own[args[0]] + bytesOf(answer)/hashRate}
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

// removal is the command that removes a member; "": candidates are keys.
func (r *rule) removal() string {
	if r.Members == nil {
		return ""
	}
	return map[string]string{"zset": "ZREM", "set": "SREM", "hash": "HDEL"}[r.Members.Kind()]
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
