package orphan

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

const (
	// candidates for which a common result means something
	many = 5
	// candidates at which the worker holds a rule if more than half are condemned
	most = 20
)

func (s sign) isKey() bool { return s.key != nil && s.kind != "channel" }

// describe names a sign of life as the rule does.
func (r *rule) describe(i int) string {
	s := r.life[i]
	text := fmt.Sprintf("keep_if[%d] %s", i, s.kind)
	switch {
	case s.key != nil && s.of != nil:
		return text + " " + s.key.String() + " " + s.of.String()
	case s.key != nil:
		return text + " " + s.key.String()
	case s.mongo != nil:
		return text + " " + s.mongo.Collection
	}
	return text + " " + string(s.field)
}

// meets counts keys of the walk that could be signs, or candidates in braces.
func (r *rule) meets(p *Plan, key string) {
	for i, s := range r.life {
		if s.isKey() && len(s.key.Variables()) > 0 {
			if _, ok := s.key.Match(key); ok {
				p.met[i]++
			}
		}
	}
	t := r.candidates
	if t == nil {
		t = r.container
	}
	if !strings.ContainsAny(key, "{}") {
		return
	}
	if _, is := t.Match(key); is {
		return
	}
	if _, would := t.Match(strings.NewReplacer("{", "", "}", "").Replace(key)); would {
		p.braced++
		p.sample = key
	}
}

// places are the keys without a variable that the rule looks at, with the type that it expects.
func (r *rule) places() map[string]string {
	all := map[string]string{}
	add := func(t *rules.Template, kind string) {
		if t != nil && len(t.Variables()) == 0 {
			if key, ok := t.Expand(nil); ok {
				all[key] = kind
			}
		}
	}
	for _, s := range r.signs() {
		if s.kind != "channel" {
			add(s.key, s.holds)
		}
	}
	if r.container != nil {
		add(r.container, r.Members.Kind())
	}
	for _, key := range r.vital() {
		if all[key] == "" {
			all[key] = ""
		}
	}
	return all
}

// vital are the places without which the rule is held.
func (r *rule) vital() (keys []string) {
	for _, ref := range r.UnlessLost {
		if ref.Exists != "" {
			keys = append(keys, ref.Exists)
		}
		if ref.Channels != nil {
			keys = append(keys, ref.Channels.When.HashNotEmpty)
		}
	}
	return keys
}

// advise adds findings about the rule itself.
func (r *rule) advise(ctx context.Context, c caller, all []*rule, p *Plan) error {
	into := func(list *[]string, format string, args ...any) { *list = append(*list, fmt.Sprintf(format, args...)) }
	total := p.Scanned - p.Verdicts[foreign]
	vital, places := r.vital(), r.places()
	for _, key := range sorted(places) {
		switch is, want := p.Places[key], places[key]; {
		case is == none && slices.Contains(vital, key) && total > 0:
			into(&p.Wrong, "%s is not there: the rule is held", key)
		case is == none:
			into(&p.Notes, "%s is not there", key)
		case want != "" && is != want:
			into(&p.Wrong, "%s is a %s, and the rule takes it for a %s", key, is, want)
		}
	}
	for _, is := range sorted(p.Types) {
		if want := r.ReadType(); want != "" && is != want && r.Members == nil {
			into(&p.Wrong, "%d candidates are a %s, and read: %s wants a %s: they are kept", p.Types[is], is, r.Read, want)
		}
	}
	switch dead, unread := p.Verdicts[condemned], p.Verdicts[unreadable]; {
	case total == 0 && p.braced > 0:
		into(&p.Cautions, "no key is a candidate, and %d have braces around what differs, such as %s: a template "+
			"with {{{id}}} stands for a variable in braces", p.braced, p.sample)
	case total == 0:
		into(&p.Notes, "no key is a candidate now")
	case p.misread > 0 && dead+p.Verdicts[young] == 0, unread == total && total >= many:
		into(&p.Wrong, "none of the %d candidates that no sign keeps can be read, and all stay: %s", unread, p.unread)
	case unread > 0 && dead+p.Verdicts[young] == 0:
		into(&p.Notes, "%d candidates cannot be read, and stay: %s", unread, p.unread)
	case dead == total && dead >= many:
		into(&p.Cautions, "all candidates are condemned: are the signs right?")
	case 2*dead > total && total >= most:
		into(&p.Cautions, "%d of %d candidates are condemned: the worker holds the rule once (mass_failure), and then "+
			"deletes them", dead, total)
	case p.Verdicts[unknown] == total:
		into(&p.Notes, "no sign of life can be told of any candidate, so all are kept: see cleanup why, with one of them")
	}
	if n := p.Verdicts[foreign]; n > 0 {
		into(&p.Notes, "%d keys have other names or types than only, not and type want: they are left alone", n)
	}
	if n := p.Verdicts[large]; n > 0 && r.Bin == 0 {
		into(&p.Notes, "%d candidates are too large to be compared, and stay: with a bin they would be moved aside", n)
	}
	if len(p.Types) > 1 {
		into(&p.Cautions, "candidates are of several types: are all of them meant?")
	}
	if p.Held != "" && (p.Held == heldSource || total > 0) {
		into(&p.Wrong, "held: %s: %s", p.Held, p.Detail)
	} else if p.Held != "" {
		into(&p.Notes, "held: %s: %s", p.Held, p.Detail)
	}
	if !r.Delete {
		into(&p.Notes, "it only reports: delete is not true")
	}
	if total == 0 || r.Of != "" { // a companion has its parent's signs
		return nil
	}
	return r.silent(ctx, c, all, p, into)
}

// silent names signs that nothing on the server could show for any candidate, whose places may be
// misspelled. A list exists only while it has elements; a place in unless_lost is foreseen to be
// away.
func (r *rule) silent(
	ctx context.Context, c caller, all []*rule, p *Plan, into func(*[]string, string, ...any),
) error {
	for i, s := range r.life {
		there, foreseen := true, s.holds == "list"
		switch {
		case s.key == nil:
		case s.kind == "channel":
			foreseen = slices.ContainsFunc(r.UnlessLost, func(ref rules.Reference) bool {
				return ref.Channels != nil && ref.Channels.Pattern == s.key.Glob()
			})
			err := c.Call(ctx, func(ctx context.Context) (err error) {
				there, err = channelsMatch(ctx, c.Client(), s.key.Glob())
				return err
			})
			if err != nil {
				return err
			}
		case len(s.key.Variables()) > 0:
			there = p.met[i] > 0
			foreseen = foreseen || slices.ContainsFunc(all, func(other *rule) bool { // a rule's candidates may be none
				return other.candidates != nil && other.candidates.Glob() == s.key.Glob()
			})
		default:
			key := rules.Literal(s.key.String())
			there = p.Places[key] != none
			foreseen = foreseen || slices.ContainsFunc(r.UnlessLost, func(ref rules.Reference) bool {
				return slices.Contains(ref.ExistsAny, key)
			})
		}
		switch {
		case there:
		case foreseen:
			into(&p.Notes, "keep_if[%d]: nothing is called %q now", i, s.key.String())
		default:
			into(&p.Cautions, "keep_if[%d]: nothing is called %q, so it keeps nobody: is it spelled as the application does?",
				i, s.key.String())
		}
	}
	return nil
}
