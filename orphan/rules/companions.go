package rules

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// Companions returns the rules without Related, each followed by a rule for each template of it,
// its companion. A companion has the variables of its parent's name, and all of the parent's signs,
// evidence, places and age that need no others. Its first sign of life is the parent itself.
//
// A member's related keys are kept, too, while the key of the members is missing: it may be lost.
func Companions(all []Rule) (out []Rule) {
	names := map[string]bool{}
	for _, r := range all {
		names[r.Name] = true
	}
	for _, r := range all {
		related := r.Related
		r.Related = nil
		out = append(out, r)
		for _, text := range related {
			if t, err := ParseTemplate(text, true); err == nil {
				c := companion(r, t)
				for n := 2; names[c.Name]; n++ {
					c.Name = fmt.Sprintf("%s-%d", strings.TrimSuffix(c.Name, fmt.Sprintf("-%d", n-1)), n)
				}
				names[c.Name] = true
				out = append(out, c)
			}
		}
	}
	return out
}

func companion(r Rule, t *Template) Rule {
	c := Rule{
		Name: r.Name + "-" + slug(t, r.Keys+membersKey(r)), Of: r.Name, Category: cmp.Or(r.Category, r.Name), Delete: r.Delete,
		Keys: t.text, Only: maps.Clone(r.Only), Not: maps.Clone(r.Not), Grace: r.Grace, Bin: r.Bin, Cap: r.Cap,
	}
	knows := func(texts ...string) bool {
		for _, text := range texts {
			of, err := ParseTemplate(text, false)
			if text != "" && (err != nil || !subset(of.Variables(), t.Variables())) {
				return false
			}
		}
		return true
	}
	other := func(name string) bool { return !slices.Contains(t.Variables(), name) }
	maps.DeleteFunc(c.Only, func(name, _ string) bool { return other(name) })
	maps.DeleteFunc(c.Not, func(name string, _ []string) bool { return other(name) })
	c.KeepIf = []Sign{r.existence()}
	for _, s := range r.KeepIf {
		if p := s.Place(); s.Value == nil && knows(p.Key, p.Of) {
			c.KeepIf = append(c.KeepIf, s)
		}
	}
	for _, ref := range r.UnlessLost {
		if knows(ref.Exists) {
			c.UnlessLost = append(c.UnlessLost, ref)
		}
	}
	if r.Members != nil {
		c.UnlessLost = append(c.UnlessLost, Reference{Exists: r.Members.Key()})
	}
	if e := r.GoneIf; e != nil && e.Mongo != nil {
		c.GoneIf = &Evidence{Mongo: e.Mongo}
	}
	if a := r.MinAge; a != nil && a.Key != "" && knows(a.Key) {
		c.MinAge = a
	}
	return c
}

// existence is the sign that a candidate of the rule exists.
func (r Rule) existence() Sign {
	m := r.Members
	if m == nil {
		return Sign{Exists: r.Keys}
	}
	of := m.As
	if Whole(of) != nil {
		of = "{" + of + "}"
	}
	if m.Hash != "" {
		return Sign{Field: &Field{Hash: m.Hash, Field: of}}
	}
	return Sign{Member: &Member{Set: m.Set, ZSet: m.ZSet, Of: of}}
}

// Asked reports whether a place is asked for with each candidate: it has a variable, or is the key
// of a companion's parent. Others hold the whole rule.
func (r Rule) Asked(ref Reference) bool {
	if ref.Exists == "" {
		return false
	}
	container := ""
	if r.Of != "" && len(r.KeepIf) > 0 && r.KeepIf[0].Exists == "" {
		container = r.KeepIf[0].Place().Key
	}
	return ref.Exists == container || Literal(ref.Exists) == ""
}

func membersKey(r Rule) string {
	if r.Members == nil {
		return ""
	}
	return r.Members.Key()
}

var notInSlug = regexp.MustCompile(`[^a-z0-9]+`)

// slug has the words of the template that its parent's lacks.
func slug(t *Template, parent string) string {
	known := strings.Split(notInSlug.ReplaceAllString(strings.ToLower(parent), "-"), "-")
	var words []string
	for _, p := range t.parts {
		for _, word := range strings.Split(notInSlug.ReplaceAllString(strings.ToLower(p.text), "-"), "-") {
			if !p.variable && word != "" && !slices.Contains(known, word) {
				words = append(words, word)
			}
		}
	}
	return cmp.Or(strings.Join(words, "-"), "related")
}

func subset(some, of []string) bool {
	return !slices.ContainsFunc(some, func(name string) bool { return !slices.Contains(of, name) })
}

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
