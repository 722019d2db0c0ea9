package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

var (
	luaToken = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|` +
		`@?[A-Za-z_]\w*|\d+(?:\.\d+)?|[=~<>]=|\.\.+|\S`)

	luaFlips = map[string]string{
		"==": "~=", "~=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "and": "or", "or": "and",
		"+": "-", "-": "+", "*": "/", "/": "*", "true": "false", "false": "true", "not": "",
	}

	// luaKept lines declare, or belong to the lines around them.
	luaKept = regexp.MustCompile(
		`^\s*($|--|(local|function|else|elseif|end|for|while)\b|return redis\.error_reply)`)

	// luaFirst precedes the 1 of string.sub(s, 1, n).
	luaFirst = regexp.MustCompile(`string\.sub\([^()]*,\s*$`)

	// luaBlank is replaced by Go code before Redis sees the script.
	luaBlank = regexp.MustCompile(`@[a-z]+`)
)

// luaMutants flips operators, changes whole numbers by one, negates conditions and drops
// statements. Strings, including the names of commands, stay. So does the 1 of string.sub(s, 1, n),
// because Lua treats 0 the same.
func luaMutants(src string) ([]mutant, error) {
	if err := luaParses(src); err != nil {
		return nil, err
	}
	var found []mutant
	add := func(start, end int, text string) {
		if luaParses(src[:start]+text+src[end:]) == nil {
			found = append(found, mutant{start: start, end: end, text: text})
		}
	}
	for _, at := range luaToken.FindAllStringIndex(src, -1) {
		word := src[at[0]:at[1]]
		if other, ok := luaFlips[word]; ok {
			add(at[0], at[1], other)
		} else if word == "1" && luaFirst.MatchString(src[:at[0]]) {
			continue
		} else if v, err := strconv.ParseInt(word, 10, 64); err == nil {
			add(at[0], at[1], strconv.FormatInt(v^1, 10))
		} else if word == "if" || word == "elseif" {
			if cond, _, ok := strings.Cut(src[at[1]:], " then"); ok && !strings.Contains(cond, "\n") {
				add(at[1], at[1]+len(cond), " not ("+cond[1:]+")")
			}
		}
	}
	start := 0
	for line := range strings.Lines(src) {
		if end := start + len(strings.TrimRight(line, "\n")); !luaKept.MatchString(line) {
			indent := len(line) - len(strings.TrimLeft(line, " "))
			add(start+indent, end, "")
		}
		start += len(line)
	}
	return found, nil
}

func luaParses(src string) error {
	if _, err := parse.Parse(strings.NewReader(luaBlank.ReplaceAllString(src, "0")), ""); err != nil {
		return fmt.Errorf("not Lua: %w", err)
	}
	return nil
}
