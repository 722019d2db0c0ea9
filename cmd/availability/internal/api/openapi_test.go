package api_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/api"
)

// testdata/openapi-3.1.json is the schema that the OpenAPI Initiative publishes of 3.1 documents
// (https://spec.openapis.org/oas/3.1/schema/2022-10-07).
func TestTheDocumentIsOpenAPI(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/openapi-3.1.json")
	require.NoError(t, err)
	defer file.Close()
	published, err := jsonschema.UnmarshalJSON(file)
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("published.json", published))
	schema, err := compiler.Compile("published.json")
	require.NoError(t, err)

	document := func() (doc map[string]any) {
		require.NoError(t, yaml.Unmarshal(api.Description(), &doc))
		raw, err := json.Marshal(doc)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(raw, &doc))
		return doc
	}
	require.NoError(t, schema.Validate(document()))
	for name, breaks := range map[string]func(doc map[string]any){
		"without a version":       func(doc map[string]any) { delete(doc, "openapi") },
		"a path without a slash":  func(doc map[string]any) { doc["paths"].(map[string]any)["api"] = map[string]any{} },
		"a response without text": func(doc map[string]any) { get(doc, "components", "responses", "TooLarge")["description"] = 7 },
	} {
		doc := document()
		breaks(doc)
		require.Error(t, schema.Validate(doc), name)
	}
}

func get(v map[string]any, names ...string) map[string]any {
	for _, name := range names {
		v = v[name].(map[string]any)
	}
	return v
}
