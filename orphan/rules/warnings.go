package rules

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
)

// Shorter times are surely a slip.
const (
	leastOrFor  = time.Minute
	leastWithin = 2 * time.Second
)

// Warnings returns sentences about legal rules that could delete what lives, or what was not meant.
func Warnings(rules []Rule) []string {
	warnings, _ := review(rules)
	return warnings
}

// Notes returns sentences about rules that endanger nothing: something dead may stay, or one
// protection has to do alone.
func Notes(rules []Rule) []string {
	_, notes := review(rules)
	return notes
}

func review(rules []Rule) (warnings, notes []string) {
	all := make([]subject, len(rules))
	ready := make([]bool, len(rules))
	for i, r := range rules {
		all[i] = newSubject(i, r)
		ready[i] = slices.ContainsFunc(packed(), func(of Rule) bool { return reflect.DeepEqual(r, of) })
	}
	for i := range all {
		s := &all[i]
		into := func(sentences *[]string) func(string, ...any) {
			return func(format string, args ...any) {
				f := Fault{Index: i, Rule: s.rule.Name, Text: fmt.Sprintf(format, args...)}
				*sentences = append(*sentences, f.String())
			}
		}
		s.note = into(&notes)
		warn := func(ready bool) func(string, ...any) {
			if ready { // it was weighed when the pack was made
				return s.note
			}
			return into(&warnings)
		}
		s.warn = warn(ready[i])
		s.places()
		s.statements()
		s.windows()
		s.spelling()
		s.idle()
		s.names()
		s.libraries()
		s.fleet()
		for j := range all {
			if i != j {
				s.warn = warn(ready[i] && ready[j])
				s.beside(&all[j])
			}
		}
	}
	return warnings, notes
}

type subject struct {
	checker
	refs    []reference
	related []*Template
	signs   []lifeKey
	looks   map[*Template]pattern
	// warn of danger to the living, else note
	warn, note func(format string, args ...any)
}

type lifeKey struct {
	field string
	t     *Template
}

func newSubject(i int, r Rule) subject {
	s := subject{checker: checker{rule: r, index: i}, looks: map[*Template]pattern{}}
	if r.Keys != "" {
		s.keys, _ = ParseTemplate(r.Keys, false)
	}
	if r.Members != nil {
		s.container, _ = ParseTemplate(r.Members.Key(), false)
		if s.member = Whole(r.Members.As); s.member == nil {
			s.member, _ = ParseTemplate(r.Members.As, false)
		}
	}
	s.refs = s.references()
	for _, text := range r.Related {
		if t, err := ParseTemplate(text, true); err == nil {
			s.related = append(s.related, t)
		}
	}
	for i, sign := range r.KeepIf {
		if t, err := ParseTemplate(sign.Exists, false); err == nil && len(t.Variables()) > 0 {
			s.signs = append(s.signs, lifeKey{fmt.Sprintf("keep_if[%d].exists", i), t})
		}
	}
	for _, ref := range s.refs {
		if t, err := ParseTemplate(ref.text, false); err == nil && len(t.Variables()) > 0 && !ref.lost {
			s.signs = append(s.signs, lifeKey{ref.field, t})
		}
	}
	return s
}

// places warns of places that may be lost with everybody alive.
func (s *subject) places() {
	var safe []string
	for _, ref := range s.refs {
		if ref.lost {
			safe = append(safe, ref.text)
		}
	}
	for _, ref := range s.refs {
		if ref.kind != "list" && !slices.Contains(safe, ref.text) && s.rule.GoneIf == nil {
			s.warn("%s: unless_lost does not name %q: if that key is lost, all candidates look dead",
				ref.field, ref.text)
		}
	}
	if len(s.refs) == 0 && s.rule.GoneIf == nil {
		if a := s.rule.MinAge; a != nil && a.FromTTL == 0 {
			s.note("nothing in unless_lost tells that what keep_if looks for was lost: then min_age alone protects")
		} else {
			s.warn("nothing in unless_lost tells that what keep_if looks for was lost")
		}
	}
	for i, ref := range s.rule.UnlessLost {
		if ref.OrFor > 0 && ref.OrFor < leastOrFor {
			s.warn("unless_lost[%d].or_for: %s is short: keys that are lost hold the rule for no longer", i, ref.OrFor)
		}
	}
}

func (s *subject) statements() {
	r := s.rule
	for i, sign := range r.KeepIf {
		if sign.Score != nil && sign.Score.Within < leastWithin {
			s.warn("keep_if[%d].score.within: %s is short: who beats once in a while looks dead in between", i,
				sign.Score.Within)
		}
	}
	if r.GoneIf == nil {
		return
	}
	if v := r.GoneIf.Value; v != nil && slices.Contains(v.In, "") {
		s.warn("gone_if.value.in: has the empty text: a field that is not filled in yet says that it is over")
	}
	if m := r.GoneIf.Mongo; m != nil && r.MinAge == nil && r.Grace == 0 && len(r.KeepIf) == 0 {
		t, err := ParseTemplate(m.ID, false)
		if err == nil && slices.ContainsFunc(t.Variables(), func(v string) bool { return r.Only[v] == "" }) {
			s.warn("gone_if.mongo.id: the id may be in use again before its document says so: want min_age or keep_if")
		}
	}
}

// names notes that related keys which could be somebody else's stay.
func (s *subject) names() {
	m := s.rule.Members
	if m != nil && Whole(m.As) != nil && s.rule.Only[m.As] == "" && len(s.related) > 0 {
		s.note("related: keys of a member with a ':' or a brace in its name stay: they could be somebody else's. " +
			"If members have another form, name it in only")
	}
}

func (s *subject) fleet() {
	faults := checkOwn([]Rule{s.rule}, guard.Layout{})
	if len(faults) == 0 {
		s.otherFleet()
	}
	for _, f := range faults {
		s.warn("%s: %s if a fleet on this Redis has the default names", f.Field, f.Text)
	}
}

func (s *subject) beside(other *subject) {
	name := fmt.Sprintf("rules[%d] %q", other.index, other.rule.Name)
	if s.index < other.index && s.sameCandidates(other) {
		s.warn("%s is about the same candidates: they go only if both rules condemn them", name)
	}
	if other.keys != nil {
		for i, t := range s.related {
			if s.meets(t, other, other.keys) {
				s.warn("related[%d]: %q can be a candidate of %s: such a key is left to that rule", i, t.text, name)
			}
		}
	}
	for i, t := range s.related {
		for j, o := range other.related {
			if s.index < other.index && t.text != o.text && s.meets(t, other, o) {
				s.note("related[%d]: %q can be related[%d] of %s, too: it stays as long as a candidate of one of both exists",
					i, t.text, j, name)
			}
		}
		tell := s.warn
		if s.rule.GoneIf != nil { // deleted on evidence that something is over
			tell = s.note
		}
		if slices.ContainsFunc(other.related, func(o *Template) bool { return o.text == t.text }) {
			continue // it is deleted with the candidates of both
		}
		for _, sign := range other.signs {
			if s.meets(t, other, sign.t) {
				tell("related[%d]: %q can be a sign of life for %s: %s; its candidates look dead without it", i, t.text, name,
					sign.field)
			}
		}
	}
	if s.rule.Members == nil {
		return
	}
	for _, ref := range other.refs {
		if key := Literal(s.rule.Members.Key()); key != "" && Literal(ref.text) == key && !ref.score {
			s.warn("members: takes members out of %s, which %s relies on: %s", key, name, ref.field)
			return
		}
	}
}

func (s *subject) sameCandidates(other *subject) bool {
	if s.keys == nil || other.keys == nil {
		m, o := s.rule.Members, other.rule.Members
		return m != nil && o != nil && Literal(m.Key()) != "" && Literal(m.Key()) == Literal(o.Key())
	}
	if len(s.rule.Only) > 0 && len(other.rule.Only) > 0 && s.rule.Keys == other.rule.Keys &&
		!maps.Equal(s.rule.Only, other.rule.Only) {
		return false
	}
	return s.meets(s.keys, other, other.keys)
}

func (s *subject) meets(t *Template, other *subject, o *Template) bool {
	if !strings.HasPrefix(t.Prefix(), o.Prefix()) && !strings.HasPrefix(o.Prefix(), t.Prefix()) {
		return false // rules are many, and few are about one key
	}
	if !strings.HasSuffix(t.suffix(), o.suffix()) && !strings.HasSuffix(o.suffix(), t.suffix()) {
		return false
	}
	return s.look(t).meets(other.look(o))
}

func (s *subject) look(t *Template) pattern {
	if s.looks[t] == nil {
		s.looks[t] = t.pattern(s.holds)
	}
	return s.looks[t]
}
