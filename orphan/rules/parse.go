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
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/rollcall-redis/rollcall/internal/near"
)

// Parse reads one YAML document {rules: [...]}. It checks all that Validate does, except for
// Rollcall's own keys, and returns a Faults error. Defaults are not filled in, and Related stays:
// see Companions.
func Parse(text []byte) ([]Rule, error) {
	d := decoder{lines: map[string]int{}}
	var doc struct {
		Rules []Rule `yaml:"rules"`
	}
	if root := d.document(text); root != nil {
		d.value(root, "", reflect.ValueOf(&doc).Elem())
	}
	if len(d.faults) == 0 && len(doc.Rules) == 0 {
		d.fault("", "want at least one rule: {rules: [...]}")
	}
	faults := d.named(doc.Rules)
	found, _ := check(doc.Rules, d.isGiven, nil)
	for _, f := range found {
		if !d.explains(f) {
			f.Line = d.line(path(f))
			faults = append(faults, f)
		}
	}
	if err := faults.orNil(); err != nil {
		return nil, err
	}
	return doc.Rules, nil
}

// A decoder fills Go values from YAML nodes. It is stricter than the library: each field is known
// and given once, each value has the wanted type, and it continues after a fault. Paths look like
// rules[0].keep_if[1].exists.
type decoder struct {
	lines  map[string]int // path -> line
	faults []located
}

type located struct {
	path    string
	line    int
	text    string
	unknown bool
}

func (d *decoder) fault(path string, format string, args ...any) {
	d.faults = append(d.faults, located{path: path, line: d.line(path), text: fmt.Sprintf(format, args...)})
}

func (d *decoder) isGiven(path string) bool { return d.lines[path] > 0 }

// line returns the line of a path, or of its innermost part that is given.
func (d *decoder) line(path string) int {
	for {
		if line := d.lines[path]; line > 0 {
			return line
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return max(d.lines[""], 1)
		}
		path = path[:i]
	}
}

// explains reports whether f likely follows from a fault of the YAML at the same place, or from an
// unknown field there: with keep_iff refused, the rule has no keep_if.
func (d *decoder) explains(f Fault) bool {
	at := path(f)
	return slices.ContainsFunc(d.faults, func(l located) bool {
		name, ok := strings.CutPrefix(l.path, at+".")
		return l.path == at || l.unknown && ok && !strings.ContainsAny(name, ".[")
	})
}

func path(f Fault) string {
	if f.Index < 0 {
		return f.Field
	}
	return strings.TrimSuffix(fmt.Sprintf("rules[%d].%s", f.Index, f.Field), ".")
}

var inRule = regexp.MustCompile(`^rules\[(\d+)\]\.?(.*)$`)

func (d *decoder) named(rules []Rule) (faults Faults) {
	for _, l := range d.faults {
		f := Fault{Index: -1, Field: l.path, Line: l.line, Text: l.text}
		if m := inRule.FindStringSubmatch(l.path); m != nil {
			f.Index, _ = strconv.Atoi(m[1])
			f.Rule, f.Field = rules[f.Index].Name, m[2]
		}
		faults = append(faults, f)
	}
	return faults
}

var syntaxLine = regexp.MustCompile(`^yaml: line (\d+): `)

func (d *decoder) document(text []byte) *yaml.Node {
	in := yaml.NewDecoder(bytes.NewReader(text))
	var doc, more yaml.Node
	err := in.Decode(&doc)
	if err == nil {
		if err = in.Decode(&more); err == nil {
			d.lines[""] = more.Line
			d.fault("", "want one document")
			return nil
		}
	}
	switch {
	case errors.Is(err, io.EOF) && len(doc.Content) == 1:
		return doc.Content[0]
	case errors.Is(err, io.EOF):
		d.fault("", "want at least one rule: {rules: [...]}")
	default:
		what := err.Error()
		if m := syntaxLine.FindStringSubmatch(what); m != nil {
			d.lines[""], _ = strconv.Atoi(m[1])
			what = what[len(m[0]):]
		}
		d.fault("", "is no YAML: %s", strings.TrimPrefix(what, "yaml: "))
	}
	return nil
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	durationText = regexp.MustCompile(`^[+-]?([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`)
)

// value leaves a fault, and the value as it is, if it cannot read the node.
func (d *decoder) value(node *yaml.Node, path string, into reflect.Value) {
	if d.lines[path] == 0 {
		d.lines[path] = node.Line
	}
	switch {
	case node.Kind == yaml.AliasNode || node.Anchor != "":
		d.fault(path, "anchors and aliases are not read here: write it out")
		return
	case node.ShortTag() == "!!null":
		d.fault(path, "has no value")
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(node, path, into.Elem())
	case reflect.Struct:
		d.fields(node, path, func(key string, value *yaml.Node, at string) {
			if of := field(into, key); of.IsValid() {
				d.value(value, at, of)
			} else {
				d.fault(at, "unknown field%s", likely(key, names(into.Type())))
				d.faults[len(d.faults)-1].unknown = true
			}
		})
	case reflect.Map:
		into.Set(reflect.MakeMap(into.Type()))
		d.fields(node, path, func(key string, value *yaml.Node, at string) {
			element := reflect.New(into.Type().Elem()).Elem()
			d.value(value, at, element)
			into.SetMapIndex(reflect.ValueOf(key), element)
		})
	case reflect.Slice:
		if node.Kind != yaml.SequenceNode {
			d.fault(path, "want a list")
			return
		}
		if len(node.Content) == 0 {
			d.fault(path, "is empty")
			return
		}
		into.Set(reflect.MakeSlice(into.Type(), len(node.Content), len(node.Content)))
		for i, element := range node.Content {
			d.value(element, fmt.Sprintf("%s[%d]", path, i), into.Index(i))
		}
	default:
		d.scalar(node, path, into)
	}
}

// fields reads a mapping: read is called for each field that has a name, and no other of its name.
func (d *decoder) fields(node *yaml.Node, path string, read func(key string, value *yaml.Node, at string)) {
	if node.Kind != yaml.MappingNode {
		d.fault(path, "want fields, such as {name: value}")
		return
	}
	if len(node.Content) == 0 && path != "" {
		d.fault(path, "is empty")
	}
	seen := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		key := node.Content[i]
		at := dotted(path, key.Value)
		switch twice := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Value == "":
			d.faults = append(d.faults, located{path: path, line: key.Line, text: "want a name before each ':'"})
		case twice:
			d.faults = append(d.faults, located{path: at, line: key.Line, text: "stands twice"})
		default:
			seen[key.Value], d.lines[at] = true, key.Line
			read(key.Value, node.Content[i+1], at)
		}
	}
}

func (d *decoder) scalar(node *yaml.Node, path string, into reflect.Value) {
	tag := node.ShortTag()
	switch {
	case node.Kind != yaml.ScalarNode:
		d.fault(path, "want one value, not a list or fields")
	case into.Type() == durationType:
		duration, err := time.ParseDuration(node.Value)
		if tag != "!!str" || err != nil || !durationText.MatchString(node.Value) {
			d.fault(path, "want a duration with its unit, such as 90s, 10m or 24h, not %s", node.Value)
			return
		}
		if duration == 0 {
			d.fault(path, "is zero: leave it out, or want more")
		}
		into.SetInt(int64(duration))
	case into.Kind() == reflect.Int:
		number, err := strconv.Atoi(node.Value)
		if tag != "!!int" || err != nil {
			d.fault(path, "want a whole number, not %s", node.Value)
			return
		}
		into.SetInt(int64(number))
	case into.Kind() == reflect.Bool:
		if tag != "!!bool" {
			d.fault(path, "want true or false, not %s", node.Value)
			return
		}
		into.SetBool(strings.EqualFold(node.Value, "true"))
	case tag != "!!str":
		d.fault(path, "want text: put %s in quotes", node.Value)
	case strings.ContainsFunc(node.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		d.fault(path, `holds a control character: write it as \x00, in single quotes`)
	case node.Value == "" && !strings.HasSuffix(path, "]"):
		d.fault(path, "is empty")
	default:
		into.SetString(node.Value)
	}
}

func dotted(path, name string) string { return strings.TrimPrefix(path+"."+name, ".") }

func field(of reflect.Value, name string) reflect.Value {
	for i := range of.NumField() {
		if tagName(of.Type().Field(i)) == name && name != "-" {
			return of.Field(i)
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

func likely(wrong string, names []string) string {
	if meant := near.Name(wrong, names, 2); meant != "" {
		return fmt.Sprintf("; is it %s?", meant)
	}
	return "; there are " + strings.Join(names, ", ")
}
