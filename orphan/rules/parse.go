package rules

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/rollcall-redis/rollcall/internal/near"
)

// Parse reads one YAML document {rules: [...]}. It checks all that Validate does, except for
// Rollcall's own keys, and returns a Faults error. Defaults are not filled in, and Related stays:
// see Companions.
func Parse(text []byte) ([]Rule, error) {
	var root yaml.Node
	var doc struct {
		Rules []Rule `yaml:"rules"`
	}
	d := document{lines: map[string]int{}}
	_ = yaml.Unmarshal(text, &root) // in.Decode returns the same error
	d.read(&root, "")
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	err := in.Decode(&doc)
	typed, is := errors.AsType[*yaml.TypeError](err)
	switch {
	case is:
		for _, said := range typed.Errors {
			d.refused(said)
		}
	case err != nil && err != io.EOF:
		d.refused(strings.TrimPrefix(err.Error(), "yaml: "))
	case in.Decode(new(yaml.Node)) != io.EOF:
		d.refused("want one document")
	case len(d.faults)+len(doc.Rules) == 0:
		d.refused("want at least one rule: {rules: [...]}")
	}
	for i := range d.faults {
		if f := &d.faults[i]; f.Index >= 0 && f.Index < len(doc.Rules) {
			f.Rule = doc.Rules[f.Index].Name
		}
	}
	form := slices.Clone(d.faults)
	found, _ := check(doc.Rules, nil)
	for _, f := range found {
		f.Line = d.line(path(f))
		// One that is likely only because the decoder refused something, as keep_iff for keep_if.
		follows := func(other Fault) bool { return other.Line == f.Line || other.Index == f.Index && f.Field == "" }
		if !slices.ContainsFunc(form, follows) {
			d.faults = append(d.faults, f)
		}
	}
	if err := d.faults.orNil(); err != nil {
		return nil, err
	}
	return doc.Rules, nil
}

// A document knows the line of each path, such as rules[0].keep_if[1].exists.
type document struct {
	lines  map[string]int
	faults Faults
}

// nothing is a number or a duration that would count as left out.
var nothing = regexp.MustCompile(`^[+-]?0+(\.0*)?([a-zµ]+)?$`)

// read notes the lines, and refuses values that are empty or zero.
func (d *document) read(node *yaml.Node, path string) {
	if d.lines[path] == 0 {
		d.lines[path] = node.Line
	}
	for i, inner := range node.Content {
		switch {
		case node.Kind == yaml.DocumentNode:
			d.read(inner, path)
		case node.Kind == yaml.SequenceNode:
			d.read(inner, fmt.Sprintf("%s[%d]", path, i))
		case i%2 > 0:
			at := dotted(path, node.Content[i-1].Value)
			d.lines[at] = node.Content[i-1].Line
			d.read(inner, at)
		}
	}
	scalar, element := node.Kind == yaml.ScalarNode, strings.HasSuffix(path, "]")
	switch {
	case path == "" || node.Kind == yaml.AliasNode:
	case !scalar && len(node.Content) == 0, node.ShortTag() == "!!null", scalar && node.Value == "" && !element:
		d.fault(path, node.Line, "is empty")
	case scalar && node.Style == 0 && nothing.MatchString(node.Value) && !element:
		d.fault(path, node.Line, "is zero: leave it out, or want more")
	}
}

var (
	inRule  = regexp.MustCompile(`^rules\[(\d+)\]\.?(.*)$`)
	refusal = regexp.MustCompile(`^line (\d+): (.*)$`)
	unknown = regexp.MustCompile(`^field (.+) not found in type `)
	misread = regexp.MustCompile(`^cannot unmarshal \S+( .*)? into (.*)$`)
)

// wanted returns the words for a Go type.
func wanted(of string) string {
	switch of {
	case "time.Duration":
		return "a duration with its unit, such as 90s, 10m or 24h"
	case "int":
		return "a whole number"
	case "bool":
		return "true or false"
	case "string":
		return "text"
	}
	if strings.HasPrefix(of, "[]") {
		return "a list"
	}
	return "fields, such as {name: value}"
}

func (d *document) fault(path string, line int, text string) {
	f := Fault{Index: -1, Field: path, Line: line, Text: text}
	if m := inRule.FindStringSubmatch(path); m != nil {
		f.Index, _ = strconv.Atoi(m[1])
		f.Field = m[2]
	}
	d.faults = append(d.faults, f)
}

// refused notes the errors of the decoder.
func (d *document) refused(text string) {
	line := 1
	if m := refusal.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = m[2]
	}
	named := ""
	if m := misread.FindStringSubmatch(text); m != nil {
		text = "want " + wanted(m[2])
		if m[1] != "" {
			text += ", not" + m[1]
		}
	}
	if m := unknown.FindStringSubmatch(text); m != nil {
		named, text = "."+m[1], "unknown field"
		if meant := near.Name(m[1], allNames(reflect.TypeFor[Rule]()), 2); meant != "" {
			text += "; is it " + meant + "?"
		}
	}
	at := slices.DeleteFunc(sorted(d.lines), func(path string) bool {
		return d.lines[path] != line || !strings.HasSuffix("."+path, named)
	})
	d.fault(append(at, "")[0], line, text)
}

// line returns the line of a path, or of its innermost part that is given.
func (d *document) line(path string) int {
	for d.lines[path] == 0 && path != "" {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return max(d.lines[path], 1)
}

func path(f Fault) string {
	if f.Index < 0 {
		return f.Field
	}
	return strings.TrimSuffix(fmt.Sprintf("rules[%d].%s", f.Index, f.Field), ".")
}

func dotted(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func field(of reflect.Value, name string) reflect.Value {
	for f, value := range of.Fields() {
		if tagName(f) == name {
			return value
		}
	}
	return reflect.Value{}
}

func tagName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return name
}

func names(of reflect.Type) (names []string) {
	for f := range of.Fields() {
		if name := tagName(f); name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// allNames also has those of the fields' own fields.
func allNames(of reflect.Type) (all []string) {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return allNames(of.Elem())
	case reflect.Struct:
		all = names(of)
		for f := range of.Fields() {
			all = append(all, allNames(f.Type)...)
		}
	}
	return all
}
