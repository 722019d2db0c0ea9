package rules

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const bullmq = "../../examples/rules/bullmq.yaml"

func TestTheSchemaHasTheFieldsOfRulesAndNoOthers(t *testing.T) {
	var s struct {
		Defs map[string]map[string]any `json:"$defs"`
	}
	require.NoError(t, json.Unmarshal(Schema(), &s))
	seen := map[string]bool{}
	var same func(of reflect.Type)
	same = func(of reflect.Type) {
		if seen[of.Name()] {
			return
		}
		seen[of.Name()] = true
		def := s.Defs[of.Name()]
		require.Equal(t, false, def["additionalProperties"], of)
		properties := def["properties"].(map[string]any)
		require.ElementsMatch(t, names(of), sorted(properties), of)
		var needed []any
		for f := range of.Fields() {
			if tagName(f) == "-" {
				continue
			}
			if !strings.HasSuffix(f.Tag.Get("yaml"), ",omitempty") {
				needed = append(needed, tagName(f))
			}
			field := properties[tagName(f)].(map[string]any)
			is, in := f.Type, field
			if is.Kind() == reflect.Slice {
				require.Equal(t, "array", deref(s.Defs, field)["type"], f.Name)
				is, in = is.Elem(), deref(s.Defs, field)["items"].(map[string]any)
			}
			if is.Kind() == reflect.Pointer {
				is = is.Elem()
			}
			switch {
			case is == reflect.TypeFor[time.Duration]():
				require.Equal(t, "#/$defs/duration", in["$ref"], f.Name)
			case is.Kind() == reflect.Struct:
				require.Equal(t, "#/$defs/"+is.Name(), in["$ref"], f.Name)
				same(is)
			case is.Kind() == reflect.Map:
				require.Equal(t, "object", in["type"], f.Name)
			case deref(s.Defs, in)["enum"] != nil:
				require.Equal(t, reflect.String, is.Kind(), f.Name)
			default:
				kinds := map[string]any{"string": "string", "bool": "boolean", "int": "integer"}
				require.Equal(t, kinds[is.Kind().String()], deref(s.Defs, in)["type"], f.Name)
			}
		}
		require.ElementsMatch(t, needed, def["required"], of)
	}
	same(reflect.TypeFor[Rule]())
	for name, def := range s.Defs {
		require.True(t, seen[name] || def["properties"] == nil, name)
	}
	require.Equal(t, variableName.String(), s.Defs["variable"]["pattern"])
	require.Equal(t, valueField.String(), s.Defs["path"]["pattern"])
}

func deref(defs map[string]map[string]any, of map[string]any) map[string]any {
	if ref, ok := of["$ref"].(string); ok {
		return defs[strings.TrimPrefix(ref, "#/$defs/")]
	}
	return of
}

// valid tells what the schema says of a YAML document.
func valid(t *testing.T, text []byte) error {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("schema.json", doc))
	s, err := c.Compile("schema.json")
	require.NoError(t, err)
	var instance any
	require.NoError(t, yaml.Unmarshal(text, &instance))
	return s.Validate(instance)
}

func TestTheSchemaTakesTheRulesThatAreShipped(t *testing.T) {
	other, err := os.ReadFile(bullmq)
	require.NoError(t, err)
	builtIn, _ := Pack("colyseus")
	for _, text := range [][]byte{builtIn, other} {
		require.NoError(t, valid(t, text))
		_, err := Parse(text)
		require.NoError(t, err)
	}
}

func TestTheSchemaRefusesWhatParseRefusesForItsForm(t *testing.T) {
	for _, c := range faultCases {
		if c.form {
			require.Error(t, valid(t, []byte(c.yaml)), c.name)
		}
	}
	require.True(t, slices.ContainsFunc(faultCases, func(c faultCase) bool { return c.form }))
}

func TestTheReferenceHasTheFieldsOfRulesAndNoOthers(t *testing.T) {
	page, err := os.ReadFile("../../docs/orphan-rules.md")
	require.NoError(t, err)
	types := []reflect.Type{
		reflect.TypeFor[Rule](), reflect.TypeFor[Members](), reflect.TypeFor[Sign](), reflect.TypeFor[Field](),
		reflect.TypeFor[Member](), reflect.TypeFor[Score](), reflect.TypeFor[Value](), reflect.TypeFor[JSON](),
		reflect.TypeFor[Evidence](), reflect.TypeFor[Mongo](), reflect.TypeFor[Condition](),
		reflect.TypeFor[Reference](), reflect.TypeFor[Channels](), reflect.TypeFor[When](),
		reflect.TypeFor[Age](),
	}
	tables := strings.Split(string(page), "<!-- fields of ")[1:]
	require.Len(t, tables, len(types))
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (yes )?")
	for i, of := range types {
		text, ok := strings.CutPrefix(tables[i], of.Name()+" -->")
		require.True(t, ok, of.Name())
		var want, got []string
		for f := range of.Fields() {
			if tagName(f) == "-" {
				continue
			}
			needed := ""
			if !strings.HasSuffix(f.Tag.Get("yaml"), ",omitempty") {
				needed = "yes "
			}
			want = append(want, tagName(f)+" "+needed)
		}
		for _, found := range row.FindAllStringSubmatch(text, -1) {
			got = append(got, found[1]+" "+found[2])
		}
		require.Equal(t, want, got, of.Name())
	}
}

// The example is the first block of YAML in the reference.
func TestTheExampleOfTheReferenceIsWithoutFault(t *testing.T) {
	page, err := os.ReadFile("../../docs/orphan-rules.md")
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	rules, err := Parse([]byte(example))
	require.NoError(t, err)
	require.Len(t, rules, 1)
	require.NoError(t, valid(t, []byte(example)))
	require.Empty(t, Warnings(rules))
}
