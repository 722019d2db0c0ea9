package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

func (c *checker) judgement() {
	r := c.rule
	if len(r.KeepIf) == 0 && r.GoneIf == nil {
		c.fault("", "want keep_if or gone_if: without a sign, everything is an orphan")
	}
	for i, s := range r.KeepIf {
		at := fmt.Sprintf("keep_if[%d]", i)
		if f := s.Field; f != nil && (f.Unit == "") != (f.Within == 0) {
			c.fault(at+".field", "want unit and within, or neither")
		}
		if j := s.JSON; j != nil {
			if !valueField.MatchString(j.Field) || j.Field == "." {
				c.fault(at+".json.field", "want a field such as .id, or .player.id, not %q", j.Field)
			}
			if (j.Unit == "") != (j.Within == 0) || (j.Is == "") == (j.Within == 0) {
				c.fault(at+".json", "want is, or unit and within")
			}
		}
	}
	// A writer may be in the middle of filling in what is missing, so that has to last.
	if e := r.GoneIf; e != nil {
		if e.NoExpiry && r.Members != nil {
			c.fault("gone_if.no_expiry", "is for keys: a member has no expiry of its own")
		}
		if (e.NoExpiry || e.Missing != "") && r.Grace < leastLacking {
			c.fault("grace", "want at least %v: for so long the candidate stays as it is", leastLacking)
		}
	}
}

func (c *checker) lost() {
	for i, ref := range c.rule.UnlessLost {
		at := fmt.Sprintf("unless_lost[%d]", i)
		for j, s := range c.rule.KeepIf {
			if s.Exists != "" && s.Exists == ref.Exists {
				c.fault(at+".exists", "is keep_if[%d], too: nothing would ever go", j)
			}
		}
		if j := slices.Index(ref.ExistsAny, ""); j >= 0 {
			c.fault(fmt.Sprintf("%s.exists_any[%d]", at, j), "is empty")
		}
		if ref.OrFor != 0 && len(ref.ExistsAny) == 0 {
			c.fault(at+".or_for", "is for exists_any alone")
		}
		if ch := ref.Channels; ch != nil && ch.Pattern != "" && strings.Trim(ch.Pattern, "*?") == "" {
			c.fault(at+".channels.pattern", "%q: want some text: any channel would do", ch.Pattern)
		}
	}
}

func (c *checker) age() {
	a := c.rule.MinAge
	if a == nil {
		return
	}
	switch absolute := a.Key != "" || a.Field != "" || a.Score; {
	case absolute && a.Unit == "":
		c.fault("min_age", "want unit: ms, s or iso")
	case !absolute && a.FromTTL != 0 && a.Unit != "":
		c.fault("min_age.unit", "is for key, field and score: from_ttl has its own")
	}
	if a.Score && a.Unit == "iso" {
		c.fault("min_age.unit", "want ms or s: a score is a number")
	}
	if a.FromTTL > 0 && a.Over >= a.FromTTL {
		c.fault("min_age.over", "want less than from_ttl: its keys are gone before they are so old")
	}
	if a.FromTTL != 0 && c.rule.Members != nil {
		c.fault("min_age.from_ttl", "is for keys: a member has no expiry of its own")
	}
	if a.Score && (c.rule.Members == nil || c.rule.Members.ZSet == "") {
		c.fault("min_age.score", "needs members: {zset: ...}")
	}
	if a.IfMissing != "" && a.Key == "" {
		c.fault("min_age.if_missing", "is for key alone")
	}
}

// companions checks Related, and returns a checker for each companion.
func (c *checker) companions() (all []checker) {
	e := c.rule.GoneIf
	if len(c.rule.Related) > 0 && e != nil && e.Mongo == nil {
		how := ""
		if c.rule.Keys != "" {
			how = fmt.Sprintf(": {keys: %q, keep_if: [{exists: %q}], ...}", strings.Replace(c.rule.Related[0], "*", "{part}", 1), c.rule.Keys)
		}
		c.fault("related", "what gone_if finds in the candidate itself is gone with it: give these keys a rule of their own, "+
			"which the candidate's existence keeps%s", how)
		return nil
	}
	for i, text := range c.rule.Related {
		at := fmt.Sprintf("related[%d]", i)
		if text == "" {
			c.fault(at, "is empty")
		}
		t := c.deletes(at, text, true)
		if t == nil || c.key == nil || c.rule.Members != nil && c.member == nil {
			continue
		}
		own := c.variables()[:len(c.variables())-len(c.rule.Bind)]
		if !subset(t.Variables(), own) {
			c.fault(at, "%q: want variables of keys or members alone: {%s}; for others write a rule of its own", text,
				strings.Join(own, "}, {"))
			continue
		}
		if !subset(own, t.Variables()) {
			c.fault(at, "%q: want all of {%s}, too: else one candidate takes what is another's", text, strings.Join(own, "}, {"))
			continue
		}
		k := checker{
			rule: companion(c.rule, t), index: c.index, at: at, key: t.With(c.rule.Only),
		}
		if k.ends(at, t); len(k.faults) == 0 {
			k.prepare()
		}
		all = append(all, k)
	}
	return all
}

// A reference is a key, or many, that a rule relies on.
type reference struct {
	field   string
	text    string
	name    string // without variables; "": it has some
	t       *Template
	kind    string // "": unknown
	pattern pattern
	open    bool // a variable can hold ':'
	score   bool // it only gives a candidate's score
	lost    bool // of unless_lost, or the key of members
	itself  bool // what the rule is about
}

// prepare is for checks that compare rules.
func (c *checker) prepare() {
	add := func(kind, text, format string, args ...any) *reference {
		t, err := ParseTemplate(text, false)
		if err != nil {
			return new(reference)
		}
		c.refs = append(c.refs, reference{
			field: fmt.Sprintf(format, args...), text: text, name: Literal(text), t: t, kind: kind, pattern: t.pattern(c.holds),
			open: slices.ContainsFunc(t.Variables(), func(name string) bool { return c.holds(name) == inValue }),
		})
		return &c.refs[len(c.refs)-1]
	}
	for i, s := range c.rule.KeepIf {
		if p := s.Place(); p.Holds != "" {
			add(p.Holds, p.Key, "keep_if[%d].%s", i, p.Path).score = p.Kind == "score"
		}
	}
	for i, u := range c.rule.UnlessLost {
		add("", u.Exists, "unless_lost[%d].exists", i).lost = true
		for j, key := range u.ExistsAny {
			add("", key, "unless_lost[%d].exists_any[%d]", i, j).lost = true
		}
		if u.Channels != nil {
			add("hash", u.Channels.When.HashNotEmpty, "unless_lost[%d].channels.when.hash_not_empty", i).lost = true
		}
	}
	c.about = reference{field: "keys", text: c.rule.Keys, t: c.key, kind: cmp.Or(c.rule.Type, c.rule.ReadType()), lost: true, itself: true}
	if m := c.rule.Members; m != nil {
		c.about.field, c.about.text, c.about.kind = "members", m.Key(), m.Kind()
	}
	if t := c.key; t != nil {
		c.about.pattern, c.about.open, c.about.name = t.pattern(c.holds), t.rest, Literal(c.about.text)
		if c.rule.Members != nil {
			c.refs = append(c.refs, c.about)
		}
	}
}

// together checks that no rule deletes what it, or another, relies on, and that no two are about
// one candidate. A key with a variable is about one candidate of the other rule, and may well be a
// candidate here.
func together(all []checker) {
	for i := range all {
		c := &all[i]
		c.spares(c)
		for j := range all {
			other := &all[j]
			if i != j {
				c.spares(other)
			}
			if j < i && c.rule.Name != other.rule.Name && c.shares(other) {
				c.fault(c.about.field, "%q can be a candidate of rules[%d] %q, too: one rule decides about a key. Put the signs "+
					"of both into one rule, or tell their keys apart with only, not or type", c.about.text, other.index,
					other.rule.Name)
			}
		}
	}
}

// spares: the rule deletes nothing that the other relies on: to that one, all candidates would look
// dead.
func (c *checker) spares(other *checker) {
	same, warned := c == other, false
	for _, ref := range other.refs {
		switch takes, empties := c.takes(ref), !ref.itself && c.empties(ref); {
		case same && takes:
			c.fault("keys", "could delete %s, which the rule relies on%s", ref.field, c.exclude(ref))
		case same && empties:
			c.fault("members", "could empty %s, which the rule relies on", ref.field)
		case same, c.keepsFor(other):
		case takes && (ref.lost || ref.name != ""):
			c.fault("keys", "could delete %s, which rules[%d] %q relies on: %s", cmp.Or(ref.name, ref.text), other.index,
				other.rule.Name, ref.field)
		case empties && !warned && other.rule.Of == "": // a companion goes by its parent
			warned = true
			c.warn("members: takes members out of %s, which rules[%d] %q relies on: %s", ref.text, other.index,
				other.rule.Name, ref.field)
		}
	}
}

// keepsFor reports whether the rule's candidates stay as long as the other's exist.
func (c *checker) keepsFor(other *checker) bool {
	return other.rule.Keys != "" &&
		slices.ContainsFunc(c.rule.KeepIf, func(s Sign) bool { return s.Exists == other.rule.Keys })
}

func (c *checker) shares(other *checker) bool {
	if c.member != nil && other.member != nil {
		return c.empties(other.about) && c.member.pattern(c.holds).meets(other.member.pattern(other.holds))
	}
	if c.rule.Keys == other.rule.Keys {
		for name, form := range c.rule.Only {
			if its := other.rule.Only[name]; its != "" && its != form {
				return false
			}
		}
	}
	return other.rule.Members == nil && c.takes(other.about) && other.takes(c.about)
}

// Literal returns the name that a template without variables stands for, or "".
func Literal(text string) string {
	if t, err := ParseTemplate(text, false); err == nil && len(t.Variables()) == 0 {
		return t.Prefix()
	}
	return ""
}

// takes reports whether the rule could delete the key. It deletes no candidate of another type than
// Type or Read's, and none with a word of Not.
func (c *checker) takes(ref reference) bool {
	return c.rule.Members == nil && c.meets(ref) && !c.spared(ref)
}

// empties reports whether the rule could delete members of the key.
func (c *checker) empties(ref reference) bool {
	return c.rule.Members != nil && !ref.score && c.meets(ref)
}

func (c *checker) meets(ref reference) bool {
	kind := c.about.kind
	return ref.t != nil && (kind == "" || ref.kind == "" || ref.kind == kind) && c.about.pattern.meets(ref.pattern)
}

// anything is the value of a variable that may have any.
const anything = "\x00"

func (c *checker) read(ref reference) (values map[string]string, ok bool) {
	values = map[string]string{}
	for _, name := range ref.t.Variables() {
		values[name] = anything
	}
	name, _ := ref.t.Expand(values)
	return c.key.Match(name)
}

func (c *checker) exclude(ref reference) string {
	is, _ := c.read(ref)
	for _, name := range sorted(is) {
		if !strings.Contains(is[name], anything) {
			return fmt.Sprintf(": leave it out with not: {%s: [%s]}", name, is[name])
		}
	}
	return ""
}

// spared reports whether a key of the reference, as a candidate, has a word of Not. Its variables
// hold no ':', so the parts of the name are the same whatever they are.
func (c *checker) spared(ref reference) bool {
	is, ok := c.read(ref)
	if !ok || ref.open {
		return false
	}
	for variable, words := range c.rule.Not {
		if slices.Contains(words, is[variable]) {
			return true
		}
	}
	return false
}

func (c *checker) limits() {
	r := c.rule
	if r.Grace > 0 && r.Grace < LeastGrace && r.GoneIf == nil {
		c.fault("grace", "want at least %v: the absence of a sign has to last", LeastGrace)
	}
	if r.Bin > 0 && r.Bin < leastBin {
		c.fault("bin", "want at least %v", leastBin)
	}
	if r.Cap != 0 && (r.Cap < 1 || r.Cap > mostCap) {
		c.fault("cap", "want 1 to %d", mostCap)
	}
}
