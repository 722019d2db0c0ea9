package rules

import (
	_ "embed"
	"slices"
)

//go:embed schema.json
var schema []byte

// Colyseus returns the rules of the pack colyseus.
func Colyseus() []Rule { return parsed("colyseus") }

// Schema returns the JSON Schema, draft 2020-12, of the rules that Parse reads.
func Schema() []byte { return slices.Clone(schema) }
