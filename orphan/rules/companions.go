package rules

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
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
