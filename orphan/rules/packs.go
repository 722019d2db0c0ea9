package rules

import (
	"embed"
	_ "embed"
	"slices"
	"strings"
)

//go:embed packs/*.yaml
var packs embed.FS

// Packs returns the names of the packs: ready rules for a library's keys.
func Packs() (names []string) {
	files, err := packs.ReadDir("packs")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	return names
}

// Pack returns the YAML of a pack, or false if it does not exist.
func Pack(name string) (text []byte, ok bool) {
	text, err := packs.ReadFile("packs/" + name + ".yaml")
	return text, err == nil
}

func parsed(name string) []Rule {
	text, _ := Pack(name)
	rules, err := Parse(text)
	if err != nil {
		panic(err) // a test parses them
	}
	return rules
}

//go:embed schema.json
var schema []byte

// Colyseus returns the rules of the pack colyseus.
func Colyseus() []Rule { return parsed("colyseus") }

// Schema returns the JSON Schema, draft 2020-12, of the rules that Parse reads.
func Schema() []byte { return slices.Clone(schema) }
