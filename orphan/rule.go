package orphan

import (
	"maps"
	"slices"
	"strings"

	"github.com/rollcall-redis/rollcall/orphan/rules"
)

type rule struct {
	rules.Rule
	key      *rules.Template   // of Keys, or of what has the Members
	member   *rules.Template   // of Members.As; nil: candidates are keys
	premises []*rules.Template // of UnlessLost, those that are asked for each candidate
	bind     map[string]string
	life     []sign
	over     *sign
	age      *rules.Template
	fields   []string // of the candidate's value that are read
	meaning  string   // digest of all that judges; a mark made with another one does not count
}

// toPath returns a dotted path: "player.id".
func toPath(field string) string { return strings.TrimPrefix(field, ".") }

type sign struct {
	rules.Place // also of kind missing or no_expiry
	key, of     *rules.Template
	field       string
}

// compile is for rules that are without fault.
func compile(of rules.Rule) *rule {
	r := &rule{Rule: of, bind: map[string]string{}}
	read := func(text string) *rules.Template { // nil for ""
		t, _ := rules.ParseTemplate(text, text == of.Keys && of.Of != "")
		return t
	}
	compiled := func(p rules.Place) sign {
		return sign{Place: p, key: read(p.Key), of: read(p.Of), field: toPath(p.Field)}
	}
	name := of.Keys
	if of.Members != nil {
		name = of.Members.Key()
		if r.member = rules.Whole(of.Members.As); r.member == nil {
			r.member = read(of.Members.As).With(of.Only)
		}
	}
	r.key = read(name).With(of.Only)
	r.UnlessLost = nil
	for _, ref := range of.UnlessLost {
		if of.Asked(ref) {
			r.premises = append(r.premises, read(ref.Exists))
		} else {
			r.UnlessLost = append(r.UnlessLost, ref)
		}
	}
	for name, field := range of.Bind {
		r.bind[name] = toPath(field)
		r.fields = append(r.fields, toPath(field))
	}
	for _, s := range of.KeepIf {
		r.life = append(r.life, compiled(s.Place()))
	}
	if e := of.GoneIf; e != nil {
		p := rules.Sign{Mongo: e.Mongo, Value: e.Value}.Place()
		switch {
		case e.NoExpiry:
			p.Kind = "no_expiry"
		case e.Missing != "":
			p = rules.Place{Kind: "missing", Field: e.Missing}
		}
		s := compiled(p)
		r.over = &s
	}
	if a := of.MinAge; a != nil {
		if r.age = read(a.Key); a.Field != "" {
			r.fields = append(r.fields, toPath(a.Field))
		}
	}
	for _, s := range r.signs() {
		if s.Kind == "value" || s.Kind == "missing" {
			r.fields = append(r.fields, s.field)
		}
	}
	slices.Sort(r.fields)
	r.fields = slices.Compact(r.fields)
	of.Category, of.Delete, of.Cap, of.Bin = "", false, 0, 0
	r.meaning = digest(jsonOf(of))
	return r
}

func (r *rule) signs() []sign {
	if r.over == nil {
		return r.life
	}
	return append(slices.Clone(r.life), *r.over)
}

func (r *rule) collections() []string {
	names := map[string]bool{}
	for _, s := range r.signs() {
		if s.Mongo != nil {
			names[s.Mongo.Collection] = true
		}
	}
	return sorted(names)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// objectIDs reports whether the sign's template is one variable that Only declares an ObjectID.
func (r *rule) objectIDs(s *sign) bool {
	v := s.of.Variables()
	return len(v) == 1 && s.of.String() == "{"+v[0]+"}" && r.Only[v[0]] == "objectid"
}

type candidate struct {
	key    string // or the key whose member it is
	member string
	values map[string]string
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
	if r.member != nil {
		for _, name := range r.member.Variables() {
			if _, has := c.values[name]; !has {
				return false
			}
		}
	}
	return true
}

// ofKey returns the candidate of a scanned key, or nil.
func (r *rule) ofKey(key string) *candidate {
	if values, ok := r.key.Match(key); ok && r.member == nil {
		return &candidate{key: key, values: values}
	}
	return nil
}

func (r *rule) ofMember(key, member string) *candidate {
	values, ok := r.key.Match(key)
	if !ok {
		return nil
	}
	parts, _ := r.member.Match(member) // if it has another form it lacks variables: see ours
	maps.Copy(values, parts)
	return &candidate{key: key, member: member, values: values}
}

// ofName returns the candidate of a mark, or nil.
func (r *rule) ofName(name string) *candidate {
	if r.member == nil {
		return r.ofKey(rules.Unspell(name))
	}
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

// fixed is the only key that has the members, or "".
func (r *rule) fixed() string { return rules.Literal(r.key.String()) }

// holds reports whether one of many keys has candidates as its members, if it has their type. One
// with a space in its name is somebody else's: in a mark the member would have no clear beginning.
func (r *rule) holds(key string) bool {
	_, ok := r.key.Match(key)
	return ok && r.member != nil && r.fixed() == "" && !strings.Contains(key, " ")
}

// templates are the names that a walk of the keyspace has to meet.
func (r *rule) templates() []*rules.Template {
	if r.fixed() != "" {
		return nil
	}
	return []*rules.Template{r.key}
}
