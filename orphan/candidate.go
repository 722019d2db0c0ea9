package orphan

import (
	"maps"
	"regexp"
	"slices"
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
		return spell(c.key) + " " + spell(c.member)
	}
	return spell(c.key)
}

var looksLike = map[string]*regexp.Regexp{
	"objectid": regexp.MustCompile(`^[0-9a-fA-F]{24}$`),
	"uuid":     regexp.MustCompile(`^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$`),
	"integer":  regexp.MustCompile(`^-?[0-9]+$`),
	"hex":      regexp.MustCompile(`^[0-9a-fA-F]{8,}$`),
}

// ours reports whether the variables match Only and are none of the words of Not, and a member has
// the form of Members.As. readValue judges the variables of Bind, once the value is read. The
// member "" has no form, since its name could not be distinguished from its key's.
func (r *rule) ours(c *candidate) bool {
	for name := range c.values {
		if _, bound := r.bind[name]; !bound && !r.fits(name, c.values) {
			return false
		}
	}
	if r.candidates == nil {
		for _, p := range r.member.parts {
			if _, has := c.values[p.text]; p.variable && !has {
				return false
			}
		}
	}
	return true
}

// fits reports whether a variable has the form in Only, and is none of the words of Not.
func (r *rule) fits(name string, values map[string]string) bool {
	like, has := r.Only[name]
	return (!has || looksLike[like].MatchString(values[name])) && !slices.Contains(r.Not[name], values[name])
}

// ofKey makes the candidate of a key that a scan has found; nil if the rule is not about it. A
// related key stands for its parent, which is to be looked for.
func (r *rule) ofKey(key string) *candidate {
	if r.candidates != nil {
		if values, ok := r.candidates.match(key); ok {
			return &candidate{key: key, values: values}
		}
	}
	for _, related := range [][]*template{r.exact, r.wild} {
		for _, t := range related {
			values, ok := t.match(key)
			if !ok || r.anothers(key) {
				continue
			}
			c := &candidate{alone: true, values: values}
			if t.rest {
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
		if c.key, ok = r.candidates.expand(c.values); !ok {
			return false
		}
		parent, ok = r.candidates.match(c.key)
	} else {
		if c.key, ok = r.container.expand(c.values); !ok {
			return false
		}
		if c.member, ok = r.member.expand(c.values); !ok {
			return false
		}
		if parent, ok = r.container.match(c.key); !ok {
			return false
		}
		parts, _ := r.member.match(c.member)
		maps.Copy(parent, parts)
	}
	for name, value := range parent {
		ok = ok && c.values[name] == value
	}
	return ok
}

// ofMember makes the candidate of a member of a key; nil: the rule is not about the key.
func (r *rule) ofMember(key, member string) *candidate {
	values, ok := r.container.match(key)
	if !ok {
		return nil
	}
	parts, _ := r.member.match(member) // of another form it lacks variables: see ours
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
			if c := r.ofMember(unspell(name[:i]), unspell(name[i+1:])); c != nil {
				return c
			}
		}
		return nil
	}
	key := unspell(name)
	values, ok := r.candidates.match(key)
	if !ok {
		return nil
	}
	return &candidate{key: key, values: values}
}
