package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

func (c *checker) judgement() {
	r := c.rule
	if len(r.KeepIf) == 0 && !c.given(path(Fault{Index: c.index, Field: "keep_if"})) && r.GoneIf == nil {
		c.fault("", "want keep_if or gone_if: without a sign, everything is an orphan")
	}
	for i, s := range r.KeepIf {
		at := fmt.Sprintf("keep_if[%d]", i)
		c.oneOf(at, s)
		c.sign(at+".exists", s.Exists)
		c.sign(at+".channel", s.Channel)
		if s.Field != nil {
			c.pair(at+".field", "hash", s.Field.Hash, "field", s.Field.Field)
			c.among(at+".field.unit", s.Field.Unit, "ms", "s", "iso")
			if (s.Field.Unit == "") != (s.Field.Within == 0) {
				c.fault(at+".field", "want unit and within, or neither")
			}
		}
		if s.Member != nil {
			c.oneOf(at+".member", *s.Member, "set", "zset", "list")
			container := "set"
			switch {
			case s.Member.ZSet != "":
				container = "zset"
			case s.Member.List != "":
				container = "list"
			}
			c.pair(at+".member", container, s.Member.Set+s.Member.ZSet+s.Member.List, "of", s.Member.Of)
		}
		if s.Score != nil {
			c.pair(at+".score", "zset", s.Score.ZSet, "of", s.Score.Of)
			c.among(at+".score.unit", s.Score.Unit, "ms", "s")
		}
		if j := s.JSON; j != nil {
			c.sign(at+".json.key", j.Key)
			c.named(at+".json.is", j.Is)
			c.among(at+".json.unit", j.Unit, "ms", "s", "iso")
			if !valueField.MatchString(j.Field) || j.Field == "." {
				c.fault(at+".json.field", "want a field such as .id, or .player.id, not %q", j.Field)
			}
			if (j.Unit == "") != (j.Within == 0) || (j.Is == "") == (j.Within == 0) {
				c.fault(at+".json", "want is, or unit and within")
			}
		}
		c.condition(at, s.Mongo, s.Value)
	}
	if r.GoneIf != nil {
		c.oneOf("gone_if", *r.GoneIf)
		c.condition("gone_if", r.GoneIf.Mongo, r.GoneIf.Value)
		c.lacks(r)
	}
}

// lacks checks evidence that is an absence. A writer may be in the middle of filling it in, so it
// has to last.
func (c *checker) lacks(r Rule) {
	e := r.GoneIf
	if e.Missing != "" {
		c.value("gone_if.missing", e.Missing)
	}
	if !e.NoExpiry && c.has("gone_if.no_expiry", reflectOf(e.NoExpiry)) {
		c.fault("gone_if.no_expiry", "want true, or leave it out")
	}
	if e.NoExpiry && r.Members != nil {
		c.fault("gone_if.no_expiry", "is for keys: a member has no expiry of its own")
	}
	if (e.NoExpiry || e.Missing != "") && r.Grace < leastLacking {
		c.fault("grace", "want at least %v: for so long the candidate stays as it is", leastLacking)
	}
}

// pair checks a key and what is looked for in it: one of them needs a variable.
func (c *checker) pair(at, key, keyText, of, ofText string) {
	k, o := c.named(at+"."+key, keyText), c.named(at+"."+of, ofText)
	if k != nil && o != nil && len(k.Variables())+len(o.Variables()) == 0 {
		c.fault(at, "want a variable: it would say the same of every candidate")
	}
}

func (c *checker) condition(at string, m *Mongo, v *Value) {
	if v != nil {
		c.value(at+".value.field", v.Field)
	}
	if m == nil {
		return
	}
	c.sign(at+".mongo.id", m.ID)
	for i, one := range m.All {
		c.oneOf(fmt.Sprintf("%s.mongo.all[%d]", at, i), one, "in", "before")
	}
}

func (c *checker) lost() {
	for i, ref := range c.rule.UnlessLost {
		at := fmt.Sprintf("unless_lost[%d]", i)
		c.oneOf(at, ref, "exists", "exists_any", "channels")
		c.named(at+".exists", ref.Exists)
		for j, s := range c.rule.KeepIf {
			if s.Exists != "" && s.Exists == ref.Exists {
				c.fault(at+".exists", "is keep_if[%d], too: nothing would ever go", j)
			}
		}
		for j, key := range ref.ExistsAny {
			at := fmt.Sprintf("%s.exists_any[%d]", at, j)
			if key == "" {
				c.fault(at, "is empty")
			}
			c.fixed(at, key)
		}
		if ref.OrFor != 0 && len(ref.ExistsAny) == 0 {
			c.fault(at+".or_for", "is for exists_any alone")
		}
		if ch := ref.Channels; ch != nil {
			c.fixed(at+".channels.when.hash_not_empty", ch.When.HashNotEmpty)
			if ch.Pattern != "" && strings.Trim(ch.Pattern, "*?") == "" {
				c.fault(at+".channels.pattern", "%q: want some text: any channel would do", ch.Pattern)
			}
		}
	}
}

func (c *checker) age() {
	a := c.rule.MinAge
	if a == nil {
		return
	}
	c.oneOf("min_age", *a, "from_ttl", "key", "field", "score")
	c.sign("min_age.key", a.Key)
	c.among("min_age.unit", a.Unit, "ms", "s", "iso")
	switch absolute := a.Key != "" || a.Field != "" || a.Score; {
	case absolute && !c.has("min_age.unit", reflectOf(a.Unit)):
		c.fault("min_age", "want unit: ms, s or iso")
	case !absolute && a.FromTTL != 0 && a.Unit != "":
		c.fault("min_age.unit", "is for key, field and score: from_ttl has its own")
	}
	if !a.Score && c.has("min_age.score", reflectOf(a.Score)) {
		c.fault("min_age.score", "want true, or leave it out")
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
	if a.Field != "" {
		c.value("min_age.field", a.Field)
	}
	if a.Score && (c.rule.Members == nil || c.rule.Members.ZSet == "") {
		c.fault("min_age.score", "needs members: {zset: ...}")
	}
	c.among("min_age.if_missing", a.IfMissing, "first_seen")
	if a.IfMissing != "" && a.Key == "" {
		c.fault("min_age.if_missing", "is for key alone")
	}
}

// reliance checks that the rule does not delete what it relies on.
func (c *checker) reliance() {
	if c.keys != nil {
		c.deleted = c.keys.pattern(c.holds)
	}
	for _, ref := range c.references() {
		if c.takes(ref) {
			c.fault("keys", "could delete %s, which the rule relies on%s", ref.field, c.exclude(ref))
		}
		if c.container != nil && !ref.score && (ref.kind == "" || ref.kind == c.rule.Members.Kind()) &&
			ref.pattern.meets(c.container.pattern(c.holds)) {
			c.fault("members", "could empty %s, which the rule relies on", ref.field)
		}
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
		if t == nil || c.unknown {
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
			rule: companion(c.rule, t), index: c.index, at: at, given: c.given, keys: t.With(c.rule.Only),
		}
		if name, ok := t.clear(k.holds); !ok {
			c.fault(at, "%q: the end of {%s} cannot be told: want ':' behind it", text, name)
			continue
		}
		k.reliance()
		all = append(all, k)
	}
	return all
}

// alone checks that no two rules are about one candidate.
func alone(all []checker) {
	for i := range all {
		for j := range all[:i] {
			if all[i].rule.Name != all[j].rule.Name && all[i].shares(&all[j]) {
				all[i].fault(all[i].place(), "%q can be a candidate of rules[%d] %q, too: one rule decides about a key. Put the signs "+
					"of both into one rule, or tell their keys apart with only, not or type", all[i].text(), all[j].index,
					all[j].rule.Name)
			}
		}
	}
}

// keepsFor reports whether the rule's candidates stay as long as the other's exist.
func (c *checker) keepsFor(other *checker) bool {
	return other.rule.Keys != "" &&
		slices.ContainsFunc(c.rule.KeepIf, func(s Sign) bool { return s.Exists == other.rule.Keys })
}

func (c *checker) place() string {
	if c.rule.Members != nil {
		return "members"
	}
	return "keys"
}

func (c *checker) text() string {
	if c.rule.Members != nil {
		return c.rule.Members.Key()
	}
	return c.rule.Keys
}

func (c *checker) shares(other *checker) bool {
	switch {
	case c.keys != nil && other.keys != nil:
		return c.sharesKeys(other)
	case c.container != nil && other.container != nil && c.member != nil && other.member != nil:
		return c.rule.Members.Kind() == other.rule.Members.Kind() &&
			c.container.pattern(c.holds).meets(other.container.pattern(other.holds)) &&
			c.member.pattern(c.holds).meets(other.member.pattern(other.holds))
	}
	return false
}

func (c *checker) sharesKeys(other *checker) bool {
	kind, its := cmp.Or(c.rule.Type, c.rule.ReadType()), cmp.Or(other.rule.Type, other.rule.ReadType())
	if kind != "" && its != "" && kind != its || !c.deleted.meets(other.deleted) {
		return false
	}
	if c.rule.Keys == other.rule.Keys {
		for name, form := range c.rule.Only {
			if its := other.rule.Only[name]; its != "" && its != form {
				return false
			}
		}
	}
	return !c.spared(other.itself()) && !other.spared(c.itself())
}

func (c *checker) itself() reference { return reference{t: c.keys, open: c.keys.rest} }

// spare checks that no rule deletes a key that another relies on: to that one, all candidates would
// look dead. A key with a variable is about one candidate, and may well be a candidate here.
func spare(all []checker) {
	for j := range all {
		other := &all[j]
		refs := other.references()
		if t := other.container; t != nil {
			m := other.rule.Members
			refs = append(refs, reference{field: "members", text: m.Key(), kind: m.Kind(), t: t, lost: true,
				pattern: t.pattern(other.holds)})
		}
		refs = slices.DeleteFunc(refs, func(ref reference) bool { return Literal(ref.text) == "" && !ref.lost })
		for i := range all {
			for _, ref := range refs {
				if by := &all[i]; i != j && by.takes(ref) && !by.keepsFor(other) {
					by.fault("keys", "could delete %s, which rules[%d] %q relies on: %s",
						cmp.Or(Literal(ref.text), ref.text), other.index, other.rule.Name, ref.field)
				}
			}
		}
	}
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
	kind := cmp.Or(c.rule.Type, c.rule.ReadType())
	return c.keys != nil && c.deleted.meets(ref.pattern) &&
		(kind == "" || ref.kind == "" || ref.kind == kind) && !c.spared(ref)
}

// anything is the value of a variable that may have any.
const anything = "\x00"

func (c *checker) read(ref reference) (values map[string]string, ok bool) {
	values = map[string]string{}
	for _, name := range ref.t.Variables() {
		values[name] = anything
	}
	name, _ := ref.t.Expand(values)
	return c.keys.Match(name)
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

type reference struct {
	field   string
	text    string
	t       *Template
	kind    string // "": unknown
	pattern pattern
	open    bool // a variable can hold ':'
	score   bool // it only gives a candidate's score
	lost    bool // of unless_lost
}

func (c *checker) references() (refs []reference) {
	add := func(kind, text, format string, args ...any) {
		if t, err := ParseTemplate(text, false); err == nil {
			field := fmt.Sprintf(format, args...)
			open := slices.ContainsFunc(t.Variables(), func(name string) bool { return c.holds(name) == inValue })
			refs = append(refs, reference{
				field: field, text: text, t: t, kind: kind, pattern: t.pattern(c.holds), open: open,
			})
		}
	}
	for i, s := range c.rule.KeepIf {
		if s.Field != nil {
			add("hash", s.Field.Hash, "keep_if[%d].field.hash", i)
		}
		if s.Member != nil {
			add("set", s.Member.Set, "keep_if[%d].member.set", i)
			add("zset", s.Member.ZSet, "keep_if[%d].member.zset", i)
			add("list", s.Member.List, "keep_if[%d].member.list", i)
		}
		if s.Score != nil {
			before := len(refs)
			add("zset", s.Score.ZSet, "keep_if[%d].score.zset", i)
			for j := range refs[before:] {
				refs[before+j].score = true
			}
		}
	}
	signs := len(refs)
	for i, u := range c.rule.UnlessLost {
		add("", u.Exists, "unless_lost[%d].exists", i)
		for j, key := range u.ExistsAny {
			add("", key, "unless_lost[%d].exists_any[%d]", i, j)
		}
		if u.Channels != nil {
			add("hash", u.Channels.When.HashNotEmpty, "unless_lost[%d].channels.when.hash_not_empty", i)
		}
	}
	for i := range refs[signs:] {
		refs[signs+i].lost = true
	}
	return refs
}

func (c *checker) limits() {
	r := c.rule
	if r.Grace > 0 && r.Grace < LeastGrace && r.GoneIf == nil {
		c.fault("grace", "want at least %v: the absence of a sign has to last", LeastGrace)
	}
	if r.Bin > 0 && r.Bin < leastBin {
		c.fault("bin", "want at least %v", leastBin)
	}
	if c.has("cap", reflectOf(r.Cap)) && (r.Cap < 1 || r.Cap > mostCap) {
		c.fault("cap", "want 1 to %d", mostCap)
	}
}
