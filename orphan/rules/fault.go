package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// A Fault is one thing wrong with a rule.
type Fault struct {
	Index int // of the rule; -1: not about a rule
	Rule  string
	Field string // dotted: keep_if[1].field.hash; empty: the whole rule
	Line  int    // of the YAML; 0: a Go struct
	Text  string
}

// Faults are sorted by line. Parse, Validate and orphan.New return them as their error.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// String reads like: line 12: rules[2] "queue": keep_if[0]: want exactly one of exists, field.
func (f Fault) String() string {
	var s strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&s, "line %d: ", f.Line)
	}
	if f.Index >= 0 {
		fmt.Fprintf(&s, "rules[%d]", f.Index)
		if f.Rule != "" {
			fmt.Fprintf(&s, " %q", f.Rule)
		}
		s.WriteString(": ")
	}
	if f.Field != "" {
		s.WriteString(f.Field + ": ")
	}
	return s.String() + f.Text
}

func (f Faults) orNil() error {
	if len(f) == 0 {
		return nil
	}
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Index, b.Index))
	})
	return f
}

// spelledByte is a byte that is not text, in templates, marks, reports and the log.
var spelledByte = regexp.MustCompile(`\\x[0-9a-fA-F]{2}`)

// Spell writes a name as text that no other name has: control characters, and bytes that are not
// UTF-8, become \xff. So does the backslash of a name that has \xff itself.
func Spell(name string) string {
	odd := func(r rune) bool { return r < ' ' || r == 0x7f || r == utf8.RuneError }
	if !strings.ContainsFunc(name, odd) && !strings.Contains(name, `\x`) {
		return name
	}
	name = spelledByte.ReplaceAllStringFunc(name, func(itself string) string { return `\x5c` + itself[1:] })
	var s strings.Builder
	for len(name) > 0 {
		r, size := utf8.DecodeRuneInString(name)
		if odd(r) && size == 1 {
			fmt.Fprintf(&s, `\x%02x`, name[0])
		} else {
			s.WriteString(name[:size])
		}
		name = name[size:]
	}
	return s.String()
}

// Unspell reverses Spell.
func Unspell(text string) string {
	if !strings.Contains(text, `\x`) {
		return text
	}
	return spelledByte.ReplaceAllStringFunc(text, func(spelled string) string {
		var b byte
		_, _ = fmt.Sscanf(spelled[2:], "%x", &b)
		return string([]byte{b})
	})
}

// leastTime: a shorter one is surely a slip, and protects from nothing.
const leastTime = 2 * time.Second

// Warnings returns sentences about legal rules that could delete what lives, or what was not meant.
func Warnings(rules []Rule) (warnings []string) {
	_, warnings = check(rules, nil)
	return warnings
}

// dangers warns of places that may be lost with everybody alive, and of places of a library that
// the rule does not know.
func (c *checker) dangers() {
	var safe []string
	relied := 0
	for _, ref := range c.refs {
		if ref.lost && !ref.itself {
			safe = append(safe, ref.text)
		}
	}
	for _, ref := range c.refs {
		if ref.itself {
			continue
		}
		relied++
		named := slices.Contains(safe, ref.text) || len(safe) > 0 && ref.name == ""
		if ref.kind != "list" && !named && c.rule.GoneIf == nil {
			c.warn("%s: unless_lost does not name %q: if that key is lost, all candidates look dead", ref.field, ref.text)
		}
	}
	aged := c.rule.MinAge != nil && c.rule.MinAge.FromTTL == 0 // which protects by itself
	if relied == 0 && c.rule.GoneIf == nil && !aged {
		c.warn("nothing in unless_lost tells that what keep_if looks for was lost")
	}
	for _, l := range jobQueues {
		c.states(l)
	}
	const ping = "resque:worker:ping:"
	if c.key != nil && c.rule.Keys != "" && !strings.HasPrefix(c.rule.Keys, ping) && c.matches(ping+"web-1:101") {
		c.warn("keys: of node-resque, %sHOST:PID looks like a worker, too: leave it out with not", ping)
	}
	if c.rule.Members != nil && strings.HasSuffix(c.about.text, "_kombu.binding.reply.celery.pidbox") {
		c.warn("members: of kombu, all clients share the entries of %s: a living client gets no answers without", c.about.text)
	}
}

// A library keeps its jobs in several places. A rule that knows only some of them deletes jobs that
// live in the others.
type library struct {
	name, begin, end string // of a job's key, or of the hash of jobs
	places           []string
	finished         []string // of jobs with a time when they finished
}

var jobQueues = []library{
	{
		"BullMQ and Bull", "bull:", "",
		[]string{"completed", "failed", "delayed", "prioritized", "waiting-children", "wait", "active", "paused"},
		[]string{"completed", "failed"},
	},
	{"Bee-Queue", "bq:", "jobs", []string{"succeeded", "failed", "delayed", "waiting", "active"}, nil},
}

func (c *checker) matches(key string) bool {
	values, ok := c.key.Match(key)
	for name, value := range values {
		ok = ok && c.rule.Fits(name, value)
	}
	return ok
}

func (c *checker) states(l library) {
	queue, is := strings.CutSuffix(c.about.text, l.end)
	if l.end == "" { // the last variable is the job
		queue, is = queue[:strings.LastIndex(queue, ":")+1], c.key != nil && c.rule.Keys != "" && c.key.suffix() == ""
	}
	if !is || !strings.HasPrefix(queue, l.begin) || strings.Count(queue, ":") != 2 || c.rule.GoneIf != nil {
		return
	}
	missing := l.places
	if a := c.rule.MinAge; a != nil && a.Field == ".finishedOn" {
		missing = l.finished
	}
	missing = slices.DeleteFunc(slices.Clone(missing), func(place string) bool {
		return slices.ContainsFunc(c.refs, func(ref reference) bool { return !ref.lost && ref.text == queue+place })
	})
	if len(missing) > 0 {
		c.warn("keep_if: jobs of %s are also in %s: those that are only there look dead", l.name, strings.Join(missing, ", "))
	}
}
