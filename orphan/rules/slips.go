package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// ownStems are what Rollcall's own names begin with, after any prefix.
var ownStems = []string{"connections:", "instance:", "instances:", "janitor:", "orphan:"}

// ownNames are Rollcall's own keys without prefix; those that end in ':' are open.
var ownNames = []string{
	"connections:registry", "instances:roster",
	"instance:heartbeat:", "instance:devices:", "instance:scanned:", "instance:about:",
	"janitor:leader", "janitor:contenders", "janitor:witness", "janitor:paused", "janitor:log",
	"janitor:timeline", "janitor:minutes", "janitor:never",
	"orphan:marks:", "orphan:state:", "orphan:rests:", "orphan:binned:", "orphan:drops:", "orphan:bin:",
	"orphan:intents:", "orphan:passes",
}

const beforeStem = ":}_./|-" // ends the prefix that a fleet gives its keys

var ownName = func() *regexp.Regexp {
	var all []string
	for _, name := range ownNames {
		if text := regexp.QuoteMeta(name); strings.HasSuffix(name, ":") {
			all = append(all, text+".+")
		} else {
			all = append(all, text)
		}
	}
	return regexp.MustCompile(`(?s)(^|[` + regexp.QuoteMeta(beforeStem) + `])(` + strings.Join(all, "|") + `)$`)
}()

// LooksOwn reports whether a key could be a Rollcall fleet's, whatever its prefix.
func LooksOwn(key string) bool { return ownName.MatchString(key) }

// spelled returns the stem that the template's own text has, after any prefix. Variables do not
// count: nearly every template's could be one.
func (t *Template) spelled() string {
	for i, p := range t.parts {
		for _, stem := range ownStems {
			for at := 0; !p.variable; at++ {
				n := strings.Index(p.text[at:], stem)
				if n < 0 {
					break
				}
				at += n
				if at == 0 && i == 0 || at > 0 && strings.ContainsRune(beforeStem, rune(p.text[at-1])) {
					return stem
				}
			}
		}
	}
	return ""
}

func (s *subject) otherFleet() {
	look := func(at, text string) {
		t, err := ParseTemplate(text, true)
		if err != nil {
			return
		}
		stem := t.spelled()
		for _, name := range ownNames {
			own := append(textPattern("", true), textPattern(name, strings.HasSuffix(name, ":"))...)
			if stem != "" && strings.HasPrefix(name, stem) && t.pattern(s.holds).meets(own) {
				s.warn("%s: %q could be %s, a key of a Rollcall fleet with that prefix", at, text, name)
				return
			}
		}
	}
	look("keys", s.rule.Keys)
	if m := s.rule.Members; m != nil {
		look("members", m.Key())
	}
	for i, text := range s.rule.Related {
		look(fmt.Sprintf("related[%d]", i), text)
	}
}

var inBraces = regexp.MustCompile(`\{[a-zA-Z][a-zA-Z0-9_]*\}`)

func (c *checker) plain(at string, texts ...string) {
	for _, text := range texts {
		if name := inBraces.FindString(text); name != "" {
			c.fault(at, "%q: %s stands for itself here, not for a variable", text, name)
		}
	}
}

func (c *checker) values() {
	check := func(at string, v *Value, m *Mongo) {
		if v != nil {
			c.plain(at+".value.in", v.In...)
			c.plain(at+".value.field", v.Field)
		}
		if m == nil {
			return
		}
		c.plain(at+".mongo.collection", m.Collection)
		for i, one := range m.All {
			c.plain(fmt.Sprintf("%s.mongo.all[%d].in", at, i), one.In...)
			c.plain(fmt.Sprintf("%s.mongo.all[%d].field", at, i), one.Field)
		}
	}
	for i, s := range c.rule.KeepIf {
		check(fmt.Sprintf("keep_if[%d]", i), s.Value, s.Mongo)
	}
	if e := c.rule.GoneIf; e != nil {
		check("gone_if", e.Value, e.Mongo)
	}
	for _, name := range sorted(c.rule.Not) {
		c.plain("not."+name, c.rule.Not[name]...)
	}
	for _, name := range sorted(c.rule.Bind) {
		c.plain("bind."+name, c.rule.Bind[name])
	}
	for i, ref := range c.rule.UnlessLost {
		if ref.Channels == nil {
			continue
		}
		for _, name := range c.variables() {
			if strings.Contains(ref.Channels.Pattern, "{"+name+"}") {
				c.plain(fmt.Sprintf("unless_lost[%d].channels.pattern", i), "{"+name+"}")
			}
		}
	}
}

func (s *subject) spelling() {
	s.eachText(func(at, text string) {
		if strings.TrimSpace(text) != text {
			s.warn("%s: %q begins or ends with a space", at, text)
		}
		t, err := ParseTemplate(text, true)
		if err != nil {
			return
		}
		for _, p := range t.parts {
			for _, name := range s.variables() {
				if !p.variable && strings.Contains(p.text, "{"+name+"}") {
					s.warn("%s: %q has the text {%s}: a variable has one brace on each side", at, text, name)
				}
			}
		}
	})
}

var ofWorkers = regexp.MustCompile(`(^|[` + regexp.QuoteMeta(beforeStem) + `])(janitor|orphan):`)

// idle warns of places in unless_lost that a Rollcall itself keeps alive.
func (s *subject) idle() {
	for i, ref := range s.rule.UnlessLost {
		for _, text := range append([]string{ref.Exists}, ref.ExistsAny...) {
			if key := Literal(text); ofWorkers.MatchString(key) {
				s.warn("unless_lost[%d]: %q is a key of Rollcall: it exists whatever is lost", i, key)
			}
		}
	}
}

func (s *subject) eachText(look func(at, text string)) {
	r := s.rule
	look("keys", r.Keys)
	for i, text := range r.Related {
		look(fmt.Sprintf("related[%d]", i), text)
	}
	if m := r.Members; m != nil {
		look("members", m.Key())
		look("members.as", m.As)
	}
	for i, sign := range r.KeepIf {
		for _, text := range signTexts(sign) {
			look(fmt.Sprintf("keep_if[%d]", i), text)
		}
	}
	if r.GoneIf != nil && r.GoneIf.Mongo != nil {
		look("gone_if.mongo.id", r.GoneIf.Mongo.ID)
	}
	if r.MinAge != nil {
		look("min_age.key", r.MinAge.Key)
	}
	for i, ref := range r.UnlessLost {
		for _, text := range append([]string{ref.Exists}, ref.ExistsAny...) {
			look(fmt.Sprintf("unless_lost[%d]", i), text)
		}
	}
}

func signTexts(s Sign) []string {
	texts := []string{s.Exists, s.Channel}
	if s.Field != nil {
		texts = append(texts, s.Field.Hash, s.Field.Field)
	}
	if s.Member != nil {
		texts = append(texts, s.Member.Set, s.Member.ZSet, s.Member.List, s.Member.Of)
	}
	if s.Score != nil {
		texts = append(texts, s.Score.ZSet, s.Score.Of)
	}
	if s.Mongo != nil {
		texts = append(texts, s.Mongo.ID)
	}
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

func (s *subject) windows() {
	r := s.rule
	if r.Grace > 0 && r.Grace < LeastGrace && r.GoneIf != nil {
		s.warn("grace: %s is short: it protects from nothing", r.Grace)
	}
	if a := r.MinAge; a != nil && a.Over > 0 && a.Over < leastWithin {
		s.warn("min_age.over: %s is short: nearly everything is older", a.Over)
	}
	before := func(at string, m *Mongo) {
		if m == nil {
			return
		}
		for i, one := range m.All {
			if one.Before > 0 && one.Before < leastWithin {
				s.warn("%s.mongo.all[%d].before: %s is short: who has just ended may still be read", at, i, one.Before)
			}
			if slices.Contains(one.In, "") {
				s.warn("%s.mongo.all[%d].in: has the empty text: a field that is not filled in yet decides", at, i)
			}
		}
	}
	for i, sign := range r.KeepIf {
		before(fmt.Sprintf("keep_if[%d]", i), sign.Mongo)
	}
	if r.GoneIf != nil {
		before("gone_if", r.GoneIf.Mongo)
	}
}
