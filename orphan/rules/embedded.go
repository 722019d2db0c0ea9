package rules

import (
	_ "embed"
	"slices"
)

//go:embed colyseus.yaml
var colyseus []byte

//go:embed schema.json
var schema []byte

// ColyseusYAML returns rules for a game backend on Colyseus and MongoDB, with comments.
func ColyseusYAML() []byte { return slices.Clone(colyseus) }

// Colyseus returns the rules of ColyseusYAML.
func Colyseus() []Rule {
	rules, err := Parse(colyseus)
	if err != nil {
		panic(err) // a test parses them
	}
	return rules
}

// Schema returns the JSON Schema, draft 2020-12, of the rules that Parse reads.
func Schema() []byte { return slices.Clone(schema) }
