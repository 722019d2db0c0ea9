package rules

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Template is a name with variables, such as "match:{match}:ratings".
type Template struct {
	text  string
	parts []part
	rest  bool // it ends in '*'
}

type part struct {
	text     string
	variable bool
	ends     string // of a variable: characters that it cannot hold
}

// noVariable has the characters that no variable holds.
const noVariable = ":{}"

var (
	variableName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`)
	braces       = regexp.MustCompile(`\{\{|\}\}|\{([a-zA-Z][a-zA-Z0-9_]*)\}|[{}]`)
)

// ParseTemplate reads a template. If rest is set, a final '*' stands for anything. The error quotes
// the text, and has no prefix.
func ParseTemplate(text string, rest bool) (*Template, error) {
	t := &Template{text: text}
	if text == "" {
		return nil, errors.New("is empty")
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("%q: is not UTF-8", text)
	}
	left := text
	if rest {
		left, t.rest = strings.CutSuffix(text, "*")
	}
	literal := func(s string) {
		s = Unspell(s)
		if n := len(t.parts); n > 0 && !t.parts[n-1].variable {
			t.parts[n-1].text += s
		} else if s != "" {
			t.parts = append(t.parts, part{text: s})
		}
	}
	from := 0
	for _, m := range braces.FindAllStringSubmatchIndex(left, -1) {
		literal(left[from:m[0]])
		from = m[1]
		switch found := left[m[0]:m[1]]; {
		case found == "{{", found == "}}":
			literal(found[:1])
		case found == "}":
			return nil, fmt.Errorf("%q: '}' without '{'", text)
		case found == "{":
			return nil, fmt.Errorf("%q: want a variable in braces, such as {user}", text)
		case len(t.parts) > 0 && t.parts[len(t.parts)-1].variable:
			return nil, fmt.Errorf("%q: text has to stand between two variables", text)
		default:
			t.parts = append(t.parts, part{text: left[m[2]:m[3]], variable: true})
		}
	}
	literal(left[from:])
	return t.With(nil), nil
}

// With sets what the variables cannot hold, given Rule.Only, and returns the template. A variable
// ends where the next text begins: {client} of "{client}.reply" holds no dot, or it would take
// names with that text twice. A form of Only does the same.
func (t *Template) With(only map[string]string) *Template {
	for i := range t.parts {
		p := &t.parts[i]
		p.ends = noVariable
		if p.variable && only[p.text] == "" && i+1 < len(t.parts) {
			_, size := utf8.DecodeRuneInString(t.parts[i+1].text)
			p.ends += t.parts[i+1].text[:size]
		}
	}
	return t
}

// String returns the parsed text.
func (t *Template) String() string { return t.text }

// Open reports whether the template ends in a '*'.
func (t *Template) Open() bool { return t.rest }

// Whole returns the template of a member's whole name, with any characters, or nil if as is more
// than a variable's name.
func Whole(as string) *Template {
	if !variableName.MatchString(as) {
		return nil
	}
	return &Template{text: as, parts: []part{{text: as, variable: true}}}
}

// Variables returns the variables, each once, in order.
func (t *Template) Variables() (names []string) {
	for _, p := range t.parts {
		if p.variable && !slices.Contains(names, p.text) {
			names = append(names, p.text)
		}
	}
	return names
}

// Expand fills values in. It returns false if one is missing.
func (t *Template) Expand(values map[string]string) (name string, ok bool) {
	var s strings.Builder
	for _, p := range t.parts {
		text := p.text
		if p.variable {
			if text, ok = values[p.text]; !ok {
				return "", false
			}
		}
		s.WriteString(text)
	}
	return s.String(), true
}

// Match reads the variables out of a name, or returns false if it has another form. A variable used
// twice has one value.
func (t *Template) Match(name string) (values map[string]string, ok bool) {
	// Most names in a scan are somebody else's.
	if !strings.HasPrefix(name, t.Prefix()) || !strings.HasSuffix(name, t.suffix()) {
		return nil, false
	}
	var found []string
	if !t.matches(0, name, &found) {
		return nil, false
	}
	values = make(map[string]string, len(found))
	for _, p := range t.parts {
		if !p.variable {
			continue
		}
		if was, twice := values[p.text]; twice && was != found[0] {
			return nil, false
		}
		values[p.text], found = found[0], found[1:]
	}
	return values, true
}

// matches continues from part i. A variable takes as much as it can.
func (t *Template) matches(i int, name string, found *[]string) bool {
	if i == len(t.parts) {
		return name == "" || t.rest
	}
	p := t.parts[i]
	if !p.variable {
		rest, ok := strings.CutPrefix(name, p.text)
		return ok && t.matches(i+1, rest, found)
	}
	n := strings.IndexAny(name, p.ends)
	if n < 0 {
		n = len(name)
	}
	before := len(*found)
	for ; n > 0; n-- {
		*found = append((*found)[:before], name[:n])
		if t.matches(i+1, name[n:], found) {
			return true
		}
	}
	*found = (*found)[:before]
	return false
}

// Prefix returns the text before the first variable.
func (t *Template) Prefix() string {
	if len(t.parts) == 0 || t.parts[0].variable {
		return ""
	}
	return t.parts[0].text
}

func (t *Template) suffix() string {
	if last := len(t.parts) - 1; !t.rest && last >= 0 && !t.parts[last].variable {
		return t.parts[last].text
	}
	return ""
}

// Glob returns a pattern of SCAN that finds all names of the template, and perhaps others.
func (t *Template) Glob() string {
	var s strings.Builder
	for _, p := range t.parts {
		if p.variable {
			s.WriteString("*")
		} else {
			s.WriteString(EscapeGlob(p.text))
		}
	}
	if t.rest {
		s.WriteString("*")
	}
	return s.String()
}

// EscapeGlob returns a pattern of SCAN that matches text alone.
func EscapeGlob(text string) string {
	return strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`).Replace(text)
}
