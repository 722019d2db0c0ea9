package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ownStems are what Rollcall's own names begin with, after any prefix.
var ownStems = []string{"connections:", "instance:", "instances:", "janitor:", "orphan:", "mitra:", "mitras:"}

// ownNames are Rollcall's own keys without prefix; those that end in ':' are open.
var ownNames = []string{
	"connections:registry", "instances:roster",
	"instance:heartbeat:", "instance:devices:", "instance:scanned:", "instance:about:",
	"janitor:leader", "janitor:contenders", "janitor:witness", "janitor:paused", "janitor:log",
	"janitor:timeline", "janitor:minutes", "janitor:never",
	"orphan:marks:", "orphan:state:", "orphan:binned:", "orphan:drops:", "orphan:bin:",
	"orphan:intents:", "orphan:passes", "mitras:online", "mitra:heartbeat:", "mitra:capacity:",
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
				s.warn("%s: %q could be %s, a key of a Rollcall fleet with that prefix%s", at, text, name, cure(t, name))
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
	if s.JSON != nil {
		texts = append(texts, s.JSON.Key, s.JSON.Is)
	}
	return slices.DeleteFunc(texts, func(text string) bool { return text == "" })
}

// windows warns of times that are surely a slip.
func (s *subject) windows() {
	r := s.rule
	short := func(at string, is, least time.Duration, why string) {
		if is > 0 && is < least {
			s.warn("%s: %s is short: %s", at, is, why)
		}
	}
	short("grace", r.Grace, leastGrace, "who shows no sign for a moment looks dead")
	if a := r.MinAge; a != nil {
		short("min_age.over", a.Over, leastWithin, "nearly everything is older")
	}
	for i, ref := range r.UnlessLost {
		short(fmt.Sprintf("unless_lost[%d].or_for", i), ref.OrFor, leastOrFor, "keys that are lost hold the rule for no longer")
	}
	const beats = "who beats once in a while looks dead in between"
	before := func(at string, m *Mongo) {
		if m == nil {
			return
		}
		for i, one := range m.All {
			short(fmt.Sprintf("%s.mongo.all[%d].before", at, i), one.Before, leastWithin, "who has just ended may still be read")
			if slices.Contains(one.In, "") {
				s.warn("%s.mongo.all[%d].in: has the empty text: a field that is not filled in yet decides", at, i)
			}
		}
	}
	for i, sign := range r.KeepIf {
		at := fmt.Sprintf("keep_if[%d]", i)
		if sign.Score != nil {
			short(at+".score.within", sign.Score.Within, leastWithin, beats)
		}
		if sign.Field != nil {
			short(at+".field.within", sign.Field.Within, leastWithin, beats)
		}
		if sign.JSON != nil {
			short(at+".json.within", sign.JSON.Within, leastWithin, beats)
		}
		before(at, sign.Mongo)
	}
	if r.GoneIf != nil {
		before("gone_if", r.GoneIf.Mongo)
	}
}
