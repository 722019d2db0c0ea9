package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const resource = "openapi.json"

// document compares answers with the OpenAPI document, which describes bodies by JSON Schema
// 2020-12: so a validator for that is enough.
type document struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
}

func readDocument(t testing.TB, text []byte) *document {
	t.Helper()
	var parsed any
	require.NoError(t, yaml.Unmarshal(text, &parsed))
	raw, err := json.Marshal(parsed) // makes keys strings, and numbers JSON numbers
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	d := &document{doc.(map[string]any), jsonschema.NewCompiler()}
	d.compiler.AssertFormat()
	require.NoError(t, d.compiler.AddResource(resource, doc))
	return d
}

// routes returns "METHOD /path" for each operation.
func (d *document) routes() (all []string) {
	for path, item := range d.doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				all = append(all, strings.ToUpper(method)+" "+path)
			}
		}
	}
	return all
}

// problems returns the types of problems.
func (d *document) problems() []any {
	at := d.at("components", "schemas", "Problem", "properties", "type", "enum")
	return at.([]any)
}

// at follows references.
func (d *document) at(names ...string) any {
	var v any = d.doc
	for _, name := range names {
		if v = d.resolved(v); v == nil {
			return nil
		}
		v = v.(map[string]any)[name]
	}
	return d.resolved(v)
}

func (d *document) resolved(v any) any {
	if object, ok := v.(map[string]any); ok {
		if ref, ok := object["$ref"].(string); ok {
			return d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return v
}

// operation returns the matching path and its operation, or nil.
func (d *document) operation(method, path string) (template string, of map[string]any) {
	for template := range d.doc["paths"].(map[string]any) {
		pattern := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), `[^/]+`)
		if regexp.MustCompile("^" + pattern + "$").MatchString(path) {
			of, _ := d.at("paths", template, strings.ToLower(method)).(map[string]any)
			return template, of
		}
	}
	return "", nil
}

// check requires that the document allows an answer. A request without an operation must be refused
// with a problem.
func (d *document) check(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
	t.Helper()
	what := fmt.Sprintf("%s %s: %d %s", req.Method, req.URL, resp.StatusCode, body)
	template, of := d.operation(req.Method, req.URL.EscapedPath())
	if of == nil {
		require.Contains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, resp.StatusCode, what)
		d.valid(t, what, body, "components", "schemas", "Problem")
		return
	}
	code := strconv.Itoa(resp.StatusCode)
	names := []string{"paths", template, strings.ToLower(req.Method), "responses", code}
	answer, ok := d.at(names...).(map[string]any)
	require.True(t, ok, "the document has no such answer: %s", what)
	headers, _ := answer["headers"].(map[string]any)
	for name := range headers {
		d.checkHeader(t, what, resp.Header.Values(name), append(names, "headers", name)...)
	}
	content, _ := answer["content"].(map[string]any)
	if content == nil {
		require.Empty(t, body, what)
		return
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	require.NoError(t, err, what)
	require.Contains(t, content, kind, what)
	if strings.HasSuffix(kind, "json") {
		d.valid(t, what, body, append(names, "content", kind, "schema")...)
	}
}

func (d *document) checkHeader(t testing.TB, what string, values []string, names ...string) {
	t.Helper()
	header := d.at(names...).(map[string]any)
	if len(values) == 0 && header["required"] != true {
		return
	}
	require.Len(t, values, 1, "%s: header %s", what, names[len(names)-1])
	value, err := json.Marshal(values[0])
	require.NoError(t, err)
	if header["schema"].(map[string]any)["type"] == "integer" {
		value = []byte(values[0])
	}
	d.valid(t, what, value, append(names, "schema")...)
}

func (d *document) valid(t testing.TB, what string, text []byte, names ...string) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err, what)
	schema, err := d.compiler.Compile(resource + "#" + d.pointer(names))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(v), what)
}

// pointer returns the JSON pointer to a schema, with references resolved.
func (d *document) pointer(names []string) string {
	var v any = d.doc
	p := ""
	for _, name := range names {
		v = v.(map[string]any)[name]
		p += "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
		for {
			ref, ok := v.(map[string]any)["$ref"].(string)
			if !ok {
				break
			}
			p = strings.TrimPrefix(ref, "#")
			v = d.at(strings.Split(p[1:], "/")...)
		}
	}
	return p
}
