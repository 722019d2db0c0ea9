package orphan

import (
	"maps"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

type candidate struct {
	key    string // or the key whose member it is
	member string
	// the key or member does not exist; only related keys were found
	alone   bool
	values  map[string]string
	related []string // related keys found by a pattern that ends in '*'
	weight  int64    // of their names, in bytes
	more    bool     // there may be more related keys
	part    bool     // it covers only these related keys
	rest    *rest    // left by the rule that deleted its parent; nil: unknown
}

func (c *candidate) name() string {
	if c.member != "" {
		return rules.Spell(c.key) + " " + rules.Spell(c.member)
	}
	return rules.Spell(c.key)
}

// ours reports whether the name fits Only, Not and Members.As. readValue judges bound variables.
// The member "" never fits, since its name would equal its key's.
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

// ofKey returns the candidate of a scanned key, or nil. A related key stands for its parent.
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

// named names the parent of a related key, unless that name yields other values than the related
// key: no look would ever judge such a parent.
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

func (r *rule) ofMember(key, member string) *candidate {
	values, ok := r.container.Match(key)
	if !ok {
		return nil
	}
	parts, _ := r.member.Match(member) // if it has another form it lacks variables: see ours
	maps.Copy(values, parts)
	return &candidate{key: key, member: member, values: values}
}

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
