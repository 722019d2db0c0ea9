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

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const bullmq = "../../examples/rules/bullmq.yaml"

// structs are a type, and those of its fields, by name.
func structs(of reflect.Type, all map[string]reflect.Type) map[string]reflect.Type {
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice:
		structs(of.Elem(), all)
	case reflect.Struct:
		all[of.Name()] = of
		for f := range of.Fields() {
			structs(f.Type, all)
		}
	}
	return all
}

// needed are the fields of a type without which its YAML is refused.
func needed(of reflect.Type) (all []string) {
	for f := range of.Fields() {
		if tagName(f) != "-" && !strings.HasSuffix(f.Tag.Get("yaml"), ",omitempty") {
			all = append(all, tagName(f))
		}
	}
	return all
}

func TestTheSchemaHasTheFieldsOfRulesAndNoOthers(t *testing.T) {
	s := struct {
		Defs map[string]struct {
			AdditionalProperties *bool
			Properties           map[string]any
			Required             []string
			Pattern              string
		} `json:"$defs"`
	}{}
	require.NoError(t, json.Unmarshal(Schema(), &s))
	for name, of := range structs(reflect.TypeFor[Rule](), map[string]reflect.Type{}) {
		def := s.Defs[name]
		require.Equal(t, new(bool), def.AdditionalProperties, name)
		require.ElementsMatch(t, names(of), sorted(def.Properties), name)
		require.ElementsMatch(t, needed(of), def.Required, name)
	}
	require.Equal(t, variableName.String(), s.Defs["variable"].Pattern)
	require.Equal(t, valueField.String(), s.Defs["path"].Pattern)
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
	types := structs(reflect.TypeFor[Rule](), map[string]reflect.Type{})
	tables := strings.Split(string(page), "<!-- fields of ")[1:]
	row := regexp.MustCompile("(?m)^[|-] `([a-z_]+)`( \\(needed\\))?")
	for _, text := range tables {
		name, text, _ := strings.Cut(text, " -->")
		var fields, yes []string
		for _, found := range row.FindAllStringSubmatch(text, -1) {
			if fields = append(fields, found[1]); found[2] != "" {
				yes = append(yes, found[1])
			}
		}
		require.Equal(t, names(types[name]), fields, name)
		require.Equal(t, needed(types[name]), yes, name)
		delete(types, name)
	}
	for name, of := range types { // the page shows them in YAML, which its tests parse
		for _, field := range names(of) {
			require.Regexp(t, `[ {]`+field+`:`, string(page), name)
		}
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
