package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// Rollcall's own keys; names that end in ':' are open.
var (
	// without a prefix
	plainNames = []string{"orphan:bin:", "devices:allowed", "telemetry:"}
	// after the fleet's prefix
	ownNames = []string{
		"connections:registry", "instances:roster", "instance:heartbeat:", "instance:devices:", "janitor:", "orphan:",
		"commands:outbound:", "commands:responses",
	}
	// after any prefix: as long as they are, since other applications have janitors, too
	fleetNames = []string{
		"connections:registry", "instances:roster",
		"instance:heartbeat:", "instance:devices:", "instance:scanned:", "instance:about:",
		"janitor:leader", "janitor:contenders", "janitor:witness", "janitor:paused", "janitor:log",
		"janitor:timeline", "janitor:minutes", "janitor:never",
		"orphan:marks:", "orphan:state:", "orphan:binned:", "orphan:drops:", "orphan:bin:",
		"orphan:intents:", "orphan:passes", "mitras:online", "mitra:heartbeat:", "mitra:capacity:",
	}
)

const beforeStem = ":}_./|-" // ends the prefix that a fleet gives its keys

// spells reports whether the template's own text has the stem of a name, after any prefix.
// Variables do not count: nearly every template's could be one.
func (t *Template) spells(name string) bool {
	stem := name[:strings.IndexByte(name, ':')+1]
	for i, p := range t.parts {
		before, _, has := strings.Cut(p.text, stem)
		if !has || p.variable {
			continue
		}
		if before == "" && i == 0 || before != "" && strings.ContainsRune(beforeStem, rune(before[len(before)-1])) {
			return true
		}
	}
	return false
}

// fleets finds keys of this Rollcall that the rule could delete, a fault, or of another fleet, a
// danger.
func (c *checker) fleets(own *guard.Layout) {
	t := c.about.t
	if t == nil {
		return
	}
	could := func(before pattern, prefix string, names []string) string {
		for _, name := range names {
			name = prefix + name
			is := slices.Concat(before, textPattern(name, strings.HasSuffix(name, ":")))
			if c.about.pattern.meets(is) && !c.beginsOtherwise(t, name) {
				return name
			}
		}
		return ""
	}
	if own != nil {
		if name := cmp.Or(could(nil, "", plainNames), could(nil, own.Prefix, ownNames)); name != "" {
			c.fault(c.about.field, "%q could be %s, a key of Rollcall%s", t.text, name, cure(t, name))
		}
	}
	field, whose := cmp.Or(c.at, c.about.field), "if one on this Redis has the default names"
	name := cmp.Or(could(nil, "", plainNames), could(nil, "", ownNames))
	if name == "" {
		spelled := slices.DeleteFunc(slices.Clone(fleetNames), func(name string) bool { return !t.spells(name) })
		name, whose = could(textPattern("", true), "", spelled), "if one has that prefix"
	}
	if name != "" {
		c.warn("%s: %q could be %s, a key of a Rollcall fleet, %s%s", field, t.text, name, whose, cure(t, name))
	}
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
	return cure(t, name) != "" && c.holds(t.parts[0].text) == inKey &&
		slices.Contains(c.rule.Not[t.parts[0].text], name[:strings.IndexByte(name, ':')])
}
