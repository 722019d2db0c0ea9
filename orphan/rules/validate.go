package rules

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rollcall-redis/rollcall/internal/guard"
)

// DefaultGrace and LeastGrace are of rules without GoneIf.
const (
	DefaultGrace = time.Minute
	LeastGrace   = time.Second
)

const (
	defaultCap   = 1000
	mostCap      = 100_000
	leastBin     = time.Minute
	leastLacking = time.Minute
	leastEnd     = 5 // of a name that begins with a variable
)

var (
	ruleName     = regexp.MustCompile(`^[a-z0-9_-]+$`)
	categoryName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
	valueField   = regexp.MustCompile(`^(\.|(\.[^.]+)+)$`)
)

// Validate returns all that is wrong with rules as a Faults error. No rule may be about this
// Rollcall's keys, which own names.
func Validate(rules []Rule, own guard.Layout) error {
	faults, _ := check(rules, &own)
	return faults.orNil()
}

// check also returns warnings. own is of this Rollcall; nil: not known.
func check(rules []Rule, own *guard.Layout) (faults Faults, warnings []string) {
	first := map[string]int{}
	all := make([]checker, len(rules))
	for i, r := range rules {
		c := &all[i]
		*c = checker{rule: r, index: i}
		c.identity()
		if was, twice := first[r.Name]; twice && r.Name != "" {
			c.fault("name", "stands twice: it is the name of rules[%d], too", was)
		} else {
			first[r.Name] = i
		}
		c.candidates()
		c.walk("", "", reflect.ValueOf(r))
		c.judgement()
		c.lost()
		c.age()
		c.limits()
		c.prepare()
	}
	for i := range rules {
		all = append(all, all[i].companions()...)
	}
	for i := range all {
		all[i].fleets(own)
		if all[i].rule.Of == "" {
			all[i].dangers()
		}
	}
	together(all)
	for i := range all {
		faults, warnings = append(faults, all[i].faults...), append(warnings, all[i].warnings...)
	}
	return faults, warnings
}

type checker struct {
	rule   Rule
	index  int
	at     string // of a companion: the field of its parent that every fault is about
	faults Faults
	key    *Template // of Rule.Keys, or of what has the members; nil: faulty
	member *Template // of Members.As; nil: none, or faulty

	about    reference // to key
	refs     []reference
	warnings []string
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func (c *checker) fault(field, format string, args ...any) {
	if c.at != "" && len(c.faults) > 0 { // one about a companion is enough
		return
	}
	c.faults = append(c.faults,
		Fault{Index: c.index, Rule: cmp.Or(c.rule.Of, c.rule.Name), Field: cmp.Or(c.at, field), Text: fmt.Sprintf(format, args...)})
}

func (c *checker) warn(format string, args ...any) {
	f := Fault{Index: c.index, Rule: cmp.Or(c.rule.Of, c.rule.Name), Text: fmt.Sprintf(format, args...)}
	c.warnings = append(c.warnings, f.String())
}

func empty(v reflect.Value) bool { return v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 }

// exclusive lists fields by type. A rule gives exactly one of them; nil: all fields of the type.
var exclusive = map[reflect.Type][]string{
	reflect.TypeFor[Rule]():      {"keys", "members"},
	reflect.TypeFor[Members]():   {"zset", "set", "hash"},
	reflect.TypeFor[Sign]():      nil,
	reflect.TypeFor[Member]():    {"set", "zset", "list"},
	reflect.TypeFor[Evidence]():  nil,
	reflect.TypeFor[Condition](): {"in", "before"},
	reflect.TypeFor[Reference](): {"exists", "exists_any", "channels"},
	reflect.TypeFor[Age]():       {"from_ttl", "key", "field", "score"},
}

// walk checks each field alone. One without omitempty is required, and a duration is not negative.
// Texts are by their tag check: names, a template with known variables; sign, with at least one;
// pair, with one together with others; fixed, without any; value, a field of the candidate's value;
// or one of some words.
func (c *checker) walk(at, check string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			c.walk(at, "", v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			c.walk(fmt.Sprintf("%s[%d]", at, i), check, v.Index(i))
		}
	case reflect.Struct:
		c.fields(at, v)
	case reflect.String:
		c.text(at, check, v.String())
	case reflect.Int64:
		switch {
		case v.Int() < 0:
			c.fault(at, "is negative")
		case v.Int() > 0 && v.Int() < int64(leastTime) && c.rule.Of == "":
			c.warn("%s: %s is short: it protects from nothing", at, time.Duration(v.Int()))
		}
	}
}

func (c *checker) fields(at string, v reflect.Value) {
	if only, is := exclusive[v.Type()]; is {
		c.oneOf(at, v, only)
	}
	paired, variables := 0, 0
	for f, value := range v.Fields() {
		if tagName(f) == "-" {
			continue
		}
		name, check := dotted(at, tagName(f)), f.Tag.Get("check")
		if !strings.HasSuffix(f.Tag.Get("yaml"), ",omitempty") && empty(value) {
			c.fault(at, "want %s", tagName(f))
		}
		if check != "pair" {
			c.walk(name, check, value)
		} else if t := c.named(name, value.String()); t != nil {
			paired, variables = paired+1, variables+len(t.Variables())
		}
	}
	if paired > 1 && variables == 0 {
		c.fault(at, "want a variable: it would say the same of every candidate")
	}
}

func (c *checker) text(at, check, text string) {
	if text == "" {
		return
	}
	switch check {
	case "":
	case "names":
		c.named(at, text)
	case "sign":
		if t := c.named(at, text); t != nil && len(t.Variables()) == 0 {
			c.fault(at, "%q: want a variable: it would say the same of every candidate", text)
		}
	case "fixed":
		if t := c.template(at, text, false); t != nil && len(t.Variables()) > 0 {
			c.fault(at, "%q: want one key, without variables", text)
		}
	case "value":
		c.value(at, text)
	default:
		c.among(at, text, strings.Fields(check))
	}
}

// oneOf's default is all fields.
func (c *checker) oneOf(at string, v reflect.Value, fields []string) {
	if len(fields) == 0 {
		fields = names(v.Type())
	}
	var there []string
	for _, name := range fields {
		if !empty(field(v, name)) {
			there = append(there, name)
		}
	}
	if len(there) != 1 {
		c.fault(at, "want exactly one of %s, not %s", strings.Join(fields, ", "),
			cmp.Or(strings.Join(there, " and "), "none"))
	}
}

func (c *checker) among(at, text string, choice []string) {
	if text != "" && !slices.Contains(choice, text) {
		c.fault(at, "want %s, not %q", strings.Join(choice, " or "), text)
	}
}

func (c *checker) identity() {
	r := c.rule
	if r.Name != "" && !ruleName.MatchString(r.Name) {
		c.fault("name", "want lower-case letters, digits, '-' and '_', not %q", r.Name)
	}
	if r.Category != "" && !categoryName.MatchString(r.Category) {
		c.fault("category", "want letters, digits, '-' and '_', not %q", r.Category)
	}
}

func (c *checker) candidates() {
	r := c.rule
	at, text := "keys", r.Keys
	if m := r.Members; m != nil {
		at, text = "members."+m.Kind(), m.Key()
	}
	if c.key = c.deletes(at, text, r.Of != ""); c.key != nil {
		if r.Keys != "" && len(c.key.Variables()) == 0 {
			c.fault(at, "%q: want a variable for what differs, such as {id}", text)
		}
		c.ends(at, c.key)
	}
	if r.Members != nil {
		c.as(r.Members.As)
	}
	if m := r.Members; m != nil && r.Read != "" && (m.Hash == "" || r.Read == "hash") {
		c.fault("read", "is for keys, and json or text for members of a hash: other members have no value")
	}
	for _, name := range sorted(r.Bind) {
		c.variable("bind."+name, name)
		if all := c.variables(); slices.Contains(all[:len(all)-len(r.Bind)], name) {
			c.fault("bind."+name, "is a variable of keys or members already")
		}
		c.value("bind."+name, r.Bind[name])
	}
	for _, name := range sorted(r.Not) {
		c.known("not."+name, name)
		if len(r.Not[name]) == 0 {
			c.fault("not."+name, "is empty")
		}
	}
	if r.Members != nil && r.Type != "" {
		c.fault("type", "is for keys: a member has none")
	}
	for _, name := range sorted(r.Only) {
		c.among("only."+name, r.Only[name], []string{"objectid", "uuid", "integer", "hex"})
		c.known("only."+name, name)
	}
}

func (c *checker) as(text string) {
	const at = "members.as"
	if c.member = Whole(text); c.member == nil {
		c.member = c.template(at, text, false)
		if c.member != nil && len(c.member.Variables()) == 0 {
			c.fault(at, "want a variable such as id, or a template with one, such as {id}:{kind}, not %q", text)
			c.member = nil
		}
	}
	if c.member == nil {
		return
	}
	if c.key != nil {
		for _, name := range c.member.Variables() {
			if slices.Contains(c.key.Variables(), name) {
				c.fault(at, "{%s} is a variable of the key already", name)
			}
		}
	}
	c.ends(at, c.member)
}

func (c *checker) ends(at string, t *Template) {
	if name, ok := t.clear(c.holds); !ok {
		c.fault(at, "%q: the end of {%s} cannot be told: want ':' behind it", t.text, name)
	}
}

func (c *checker) variable(at, name string) {
	if name != "" && !variableName.MatchString(name) {
		c.fault(at, "want letters, digits and '_' for a variable, not %q", name)
	}
}

func (c *checker) variables() (names []string) {
	for _, t := range []*Template{c.key, c.member} {
		if t != nil {
			names = append(names, t.Variables()...)
		}
	}
	return append(names, sorted(c.rule.Bind)...)
}

func (c *checker) known(at string, names ...string) {
	hidden := c.key == nil || c.rule.Members != nil && c.member == nil // by a fault
	for _, name := range names {
		if !hidden && !slices.Contains(c.variables(), name) {
			c.fault(at, "no keys, as or bind gives {%s}; known: {%s}", name,
				strings.Join(c.variables(), "}, {"))
		}
	}
}

func (c *checker) holds(name string) *[256]bool {
	switch {
	case c.rule.Only[name] != "":
		return inOnly
	case c.key != nil && slices.Contains(c.key.Variables(), name),
		c.member != nil && Whole(c.member.text) == nil && slices.Contains(c.member.Variables(), name):
		return inKey
	}
	return inValue
}

// template returns nil for an empty or faulty text. rest permits a '*' at its end.
func (c *checker) template(at, text string, rest bool) *Template {
	if text == "" {
		return nil
	}
	t, err := ParseTemplate(text, rest)
	if err != nil {
		c.fault(at, "%v", err)
		return nil
	}
	if strings.Contains(strings.TrimSuffix(text, "*"), "*") || !t.rest && strings.HasSuffix(text, "*") {
		c.fault(at, `%q: '*' is for the end of related: name what differs, such as {id}; the character itself is \x2a`, text)
		return nil
	}
	return t
}

func (c *checker) deletes(at, text string, rest bool) *Template {
	t := c.template(at, text, rest)
	if t == nil || len(t.Prefix()) >= 2 || len(t.Variables()) == 0 && !t.rest {
		return t
	}
	bound := slices.ContainsFunc(t.Variables(), func(name string) bool { return c.rule.Only[name] != "" })
	switch {
	case t.Prefix() != "" || len(t.suffix()) < leastEnd:
		c.fault(at, "%q: want at least 2 characters before what differs", text)
	case !bound:
		c.fault(at, "%q: want at least 2 characters before what differs, or in only what one variable looks like", text)
	default:
		return t
	}
	return nil
}

func (c *checker) named(at, text string) *Template {
	t := c.template(at, text, false)
	if t != nil {
		c.known(at, t.Variables()...)
	}
	return t
}

func (c *checker) value(at, field string) {
	switch {
	case c.rule.Read == "":
		c.fault(at, "needs read: json or hash, or text for the whole value")
	case field == "":
	case (field == ".") != (c.rule.Read == "text"):
		c.fault(at, "want %q with read: text, for the whole value, and a field such as .id with json or hash", ".")
	case !valueField.MatchString(field):
		c.fault(at, "want a field such as .id, or .player.id, not %q", field)
	case c.rule.Read == "hash" && strings.Count(field, ".") > 1:
		c.fault(at, "want one field such as .id, not %q: a hash holds no others", field)
	}
}
