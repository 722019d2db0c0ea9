package exact_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/exact"
)

func TestAnObjectIsReadByItsExactNamesEachOnce(t *testing.T) {
	t.Parallel()
	type body struct {
		ID    string          `json:"id"`
		Count int             `json:"count,omitempty"`
		Rest  json.RawMessage `json:"rest"`
	}
	for text, wrong := range map[string]string{
		`{"id": "a", "count": 3}`: "",
		` { } `:                   "",
		`{"rest": [{"a": 1}, {"a": 1}, "a", "a"]}`:        "",
		`{"rest": {"id": {"id": {"id": "id"}}}}`:          "",
		`{"ID": "a"}`:                                     `unknown member "ID"; known: id, count, rest`,
		`{"id": "a", "Id": "b"}`:                          `unknown member "Id"`,
		`{"id": "a", "id": "a"}`:                          `member "id": given more than once`,
		`{"id": "a", "\u0069d": "b"}`:                     `member "id": given more than once`,
		`{"rest": [1, {"x": {"y": 1, "z": [], "y": 2}}]}`: `member "y": given more than once`,
		`{"rest": {"a": {}, "b": {}, "a": {}}}`:           `member "a": given more than once`,
		`{"count": "3"}`:                                  "string",
		`{"other": 1}`:                                    `unknown member "other"`,
		`{"count": 3} {}`:                                 "after top-level value",
		`{"count": 3`:                                     "unexpected end",
		``:                                                "unexpected end",
		`null`:                                            "expected one JSON object",
		`[]`:                                              "expected one JSON object",
		`"id"`:                                            "expected one JSON object",
		"{\"id\": \"\xff\"}":                              "expected UTF-8",
	} {
		var b body
		err := exact.Unmarshal([]byte(text), &b)
		if wrong == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, wrong, text)
		}
	}
}

// FuzzObject looks for a text that is read in another way than encoding/json reads a map.
func FuzzObject(f *testing.F) {
	for _, text := range []string{`{"a": {"a": [1, "a", {"b": null}]}}`, `{"a": 1, "a": 2}`, `[[]]`, `{"": ""}`, `{"a"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := exact.Object(raw)
		if err != nil {
			return
		}
		var want map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(raw, &want))
		require.Equal(t, want, got)
	})
}
