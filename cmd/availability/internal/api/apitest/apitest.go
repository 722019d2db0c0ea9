// Package apitest compares answers of the HTTP API with what its OpenAPI document says of them. It
// is for tests.
//
// OpenAPI 3.1 describes bodies by JSON Schema 2020-12, so a validator of that is enough. The
// document itself is compared with the schema that is published of OpenAPI documents.
package apitest

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

// A Document is an OpenAPI document.
type Document struct {
	doc      map[string]any
	compiler *jsonschema.Compiler
}

// Read reads a document.
func Read(t testing.TB, text []byte) *Document {
	t.Helper()
	var parsed any
	require.NoError(t, yaml.Unmarshal(text, &parsed))
	raw, err := json.Marshal(parsed) // keys become texts, and numbers those of JSON
	require.NoError(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	require.NoError(t, err)
	d := &Document{doc.(map[string]any), jsonschema.NewCompiler()}
	d.compiler.AssertFormat()
	require.NoError(t, d.compiler.AddResource(resource, doc))
	return d
}

// Routes are "METHOD /path" of each operation.
func (d *Document) Routes() (all []string) {
	for path, item := range d.doc["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			if method != "parameters" {
				all = append(all, strings.ToUpper(method)+" "+path)
			}
		}
	}
	return all
}

// Problems are the types of problems.
func (d *Document) Problems() []any {
	at := d.at("components", "schemas", "Problem", "properties", "type", "enum")
	return at.([]any)
}

// at is what stands at a path of names, through references.
func (d *Document) at(names ...string) any {
	var v any = d.doc
	for _, name := range names {
		if v = d.resolved(v); v == nil {
			return nil
		}
		v = v.(map[string]any)[name]
	}
	return d.resolved(v)
}

func (d *Document) resolved(v any) any {
	if object, ok := v.(map[string]any); ok {
		if ref, ok := object["$ref"].(string); ok {
			return d.at(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
	}
	return v
}

// operation is the path as the document has it, and its operation; nil: there is none.
func (d *Document) operation(method, path string) (template string, of map[string]any) {
	for template := range d.doc["paths"].(map[string]any) {
		pattern := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), `[^/]+`)
		if regexp.MustCompile("^" + pattern + "$").MatchString(path) {
			of, _ := d.at("paths", template, strings.ToLower(method)).(map[string]any)
			return template, of
		}
	}
	return "", nil
}

// Check requires that an answer is one that the document knows. What no operation is for has to be
// refused by a problem.
func (d *Document) Check(t testing.TB, req *http.Request, resp *http.Response, body []byte) {
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

func (d *Document) checkHeader(t testing.TB, what string, values []string, names ...string) {
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

// valid requires that a text is JSON as a schema of the document has it.
func (d *Document) valid(t testing.TB, what string, text []byte, names ...string) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err, what)
	schema, err := d.compiler.Compile(resource + "#" + d.pointer(names))
	require.NoError(t, err)
	require.NoError(t, schema.Validate(v), what)
}

// pointer is where a schema stands, as a JSON pointer without references on its way.
func (d *Document) pointer(names []string) string {
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
