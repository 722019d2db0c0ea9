package orphan

import (
	"maps"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A candidate is one key, or one member, that a rule is about.
type candidate struct {
	key    string // the candidate itself, or the key whose member it is
	member string
	// alone: the key or member does not exist; only related keys were found.
	alone   bool
	values  map[string]string // of the variables in its name
	related []string          // related keys found by a pattern that ends in '*'
	weight  int64             // about so many bytes their names take
	more    bool              // there may be other related keys
	part    bool              // it is about these related keys alone, and about no other
	rest    *rest             // its parent has gone by the rule itself, and this was left; nil: not known
}

// name is what reports, marks and the log call a candidate. Bytes that are not text are spelled.
func (c *candidate) name() string {
	if c.member != "" {
		return rules.Spell(c.key) + " " + rules.Spell(c.member)
	}
	return rules.Spell(c.key)
}

// ours reports whether the variables match Only and are none of the words of Not, and a member has
// the form of Members.As. readValue judges the variables of Bind, once the value is read. The
// member "" has no form, since its name could not be distinguished from its key's.
func (r *rule) ours(c *candidate) bool {
	for name := range c.values {
		if _, bound := r.bind[name]; !bound && !r.Fits(name, c.values[name]) {
			return false
		}
	}
	if r.candidates == nil {
		for _, name := range r.member.Variables() {
			if _, has := c.values[name]; !has {
				return false
			}
		}
	}
	return true
}

// ofKey makes the candidate of a key that a scan has found; nil if the rule is not about it. A
// related key stands for its parent, which is to be looked for.
func (r *rule) ofKey(key string) *candidate {
	if r.candidates != nil {
		if values, ok := r.candidates.Match(key); ok {
			return &candidate{key: key, values: values}
		}
	}
	for _, related := range [][]*rules.Template{r.exact, r.wild} {
		for _, t := range related {
			values, ok := t.Match(key)
			if !ok || r.anothers(key) {
				continue
			}
			c := &candidate{alone: true, values: values}
			if t.Open() {
				c.related = []string{key}
			}
			if r.named(c) {
				return c
			}
		}
	}
	return nil
}

// named gives a candidate that is known by its related key the name of its parent. It reports false
// if that name has other values than the related key: no look would ever judge such a parent.
func (r *rule) named(c *candidate) (ok bool) {
	var parent map[string]string
	if r.candidates != nil {
		if c.key, ok = r.candidates.Expand(c.values); !ok {
			return false
		}
		parent, ok = r.candidates.Match(c.key)
	} else {
		if c.key, ok = r.container.Expand(c.values); !ok {
			return false
		}
		if c.member, ok = r.member.Expand(c.values); !ok {
			return false
		}
		if parent, ok = r.container.Match(c.key); !ok {
			return false
		}
		parts, _ := r.member.Match(c.member)
		maps.Copy(parent, parts)
	}
	for name, value := range parent {
		ok = ok && c.values[name] == value
	}
	return ok
}

// ofMember makes the candidate of a member of a key; nil: the rule is not about the key.
func (r *rule) ofMember(key, member string) *candidate {
	values, ok := r.container.Match(key)
	if !ok {
		return nil
	}
	parts, _ := r.member.Match(member) // of another form it lacks variables: see ours
	maps.Copy(values, parts)
	return &candidate{key: key, member: member, values: values}
}

// ofName makes the candidate that a mark names.
func (r *rule) ofName(name string) *candidate {
	if r.candidates == nil {
		for i := range len(name) {
			if name[i] != ' ' {
				continue
			}
			if c := r.ofMember(rules.Unspell(name[:i]), rules.Unspell(name[i+1:])); c != nil {
				return c
			}
		}
		return nil
	}
	key := rules.Unspell(name)
	values, ok := r.candidates.Match(key)
	if !ok {
		return nil
	}
	return &candidate{key: key, values: values}
}
