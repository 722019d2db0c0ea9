package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/guard"
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
	for at, t := range s.rule.deletes {
		stem := t.spelled()
		for _, name := range ownNames {
			own := append(textPattern("", true), textPattern(name, strings.HasSuffix(name, ":"))...)
			if stem != "" && strings.HasPrefix(name, stem) && t.pattern(s.holds).meets(own) {
				s.warn("%s: %q could be %s, a key of a Rollcall fleet with that prefix%s", at, t.text, name, cure(t, name))
				break
			}
		}
	}
}

// deletes iterates over the templates of what the rule deletes, by the field that has each.
func (r Rule) deletes(yield func(at string, t *Template) bool) {
	each := func(at, text string, rest bool) bool {
		t, err := ParseTemplate(text, rest)
		return err != nil || yield(at, t)
	}
	if !each("keys", r.Keys, r.Of != "") || !each("members", membersKey(r), false) {
		return
	}
	for i, text := range r.Related {
		if !each(fmt.Sprintf("related[%d]", i), text, true) {
			return
		}
	}
}

// checkOwn finds rules that could delete the keys of a Rollcall with this layout.
func checkOwn(rules []Rule, l guard.Layout) (faults Faults) {
	own := map[string]pattern{}
	for _, text := range []string{
		l.Registry(), l.Heartbeat("*"), l.Devices("*"), l.Roster(),
		l.Prefix + "janitor:*", l.Prefix + "orphan:*", "orphan:bin:*",
		l.Prefix + "commands:outbound:*", l.Prefix + "commands:responses",
		"devices:allowed", "telemetry:*",
	} {
		name, open := strings.CutSuffix(text, "*")
		own[text] = textPattern(name, open)
	}
	for i, r := range rules {
		c := newSubject(i, r)
		for at, t := range r.deletes {
			for _, name := range sorted(own) {
				if t.pattern(c.holds).meets(own[name]) && !c.beginsOtherwise(t, name) {
					c.fault(at, "%q could be %s, a key of Rollcall%s", t.text, name, cure(t, name))
				}
			}
		}
		faults = append(faults, c.faults...)
	}
	return faults
}

// cure is how to leave the name out, if the template begins with a variable.
func cure(t *Template, name string) string {
	word, _, ok := strings.Cut(name, ":")
	if !ok || len(t.parts) < 2 || !t.parts[0].variable || !strings.HasPrefix(t.parts[1].text, ":") {
		return ""
	}
	return fmt.Sprintf(": leave it out with not: {%s: [%s]}", t.parts[0].text, strings.TrimLeft(word, "{}"))
}

// beginsOtherwise reports whether Not excludes the name's text before its first ':'.
func (c *checker) beginsOtherwise(t *Template, name string) bool {
	word, _, ok := strings.Cut(name, ":")
	return ok && len(t.parts) > 1 && t.parts[0].variable && strings.HasPrefix(t.parts[1].text, ":") &&
		c.holds(t.parts[0].text) == inKey && slices.Contains(c.rule.Not[t.parts[0].text], word)
}
