package rules

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/rollcall-redis/rollcall/guard"
)

// leastTime: a shorter one is surely a slip, and protects from nothing.
const leastTime = 2 * time.Second

// Warnings returns sentences about legal rules that could delete what lives, or what was not meant.
func Warnings(rules []Rule) (warnings []string) {
	all := make([]subject, len(rules))
	for i, r := range rules {
		all[i] = newSubject(i, r)
	}
	for i := range all {
		s := &all[i]
		s.warn = func(format string, args ...any) {
			f := Fault{Index: i, Rule: s.rule.Name, Text: fmt.Sprintf(format, args...)}
			warnings = append(warnings, f.String())
		}
		s.places()
		s.walk("", reflect.ValueOf(s.rule))
		s.libraries()
		s.fleet()
		for j := range all {
			if i != j {
				s.beside(&all[j])
			}
		}
	}
	return warnings
}

type subject struct {
	checker
	refs []reference
}

func newSubject(i int, r Rule) subject {
	s := subject{checker: checker{rule: r, index: i, given: func(string) bool { return false }}}
	if r.Keys != "" {
		s.keys, _ = ParseTemplate(r.Keys, r.Of != "")
	}
	if r.Members != nil {
		s.container, _ = ParseTemplate(r.Members.Key(), false)
		if s.member = Whole(r.Members.As); s.member == nil {
			s.member, _ = ParseTemplate(r.Members.As, false)
		}
	}
	s.refs = s.references()
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
	aged := s.rule.MinAge != nil && s.rule.MinAge.FromTTL == 0 // which protects by itself
	for _, ref := range s.refs {
		named := slices.Contains(safe, ref.text) || len(safe) > 0 && Literal(ref.text) == ""
		if ref.kind != "list" && !named && s.rule.GoneIf == nil {
			s.warn("%s: unless_lost does not name %q: if that key is lost, all candidates look dead", ref.field, ref.text)
		}
	}
	if len(s.refs) == 0 && s.rule.GoneIf == nil && !aged {
		s.warn("nothing in unless_lost tells that what keep_if looks for was lost")
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

// beside warns of members that are signs of life to another rule.
func (s *subject) beside(other *subject) {
	// A member that stays as long as the other's candidate exists is no danger to it, and its
	// companions are meant to follow it.
	if s.rule.Members == nil || s.container == nil || s.keepsFor(&other.checker) || other.rule.Of == s.rule.Name {
		return
	}
	for _, ref := range other.refs {
		kin := ref.kind == "" || ref.kind == s.rule.Members.Kind()
		if kin && !ref.score && ref.pattern.meets(s.container.pattern(s.holds)) {
			s.warn("members: takes members out of %s, which rules[%d] %q relies on: %s", ref.text, other.index, other.rule.Name,
				ref.field)
			return
		}
	}
}
