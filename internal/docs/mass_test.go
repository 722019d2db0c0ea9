package docs

import (
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var lower = flag.Bool("lower", false, "write into mass.txt what has become smaller")

// mass.txt has a line for each room: its folder, with those below it that have no line of their
// own, the tokens of its code, and those of its tests; for pages it is words.
const (
	massFile = "mass.txt"
	// slack is by how much a room may grow unnoticed, or be smaller than its line.
	slack = 200
)

type mass struct{ product, tests int }

var (
	massLine = regexp.MustCompile(`(?m)^(\S+) +(\d+) +(\d+)$`)
	comments = map[string]*regexp.Regexp{
		".lua": regexp.MustCompile(`--[^\n]*`),
		".sql": regexp.MustCompile(`--[^\n]*`),
		".js":  regexp.MustCompile(`(?s)/\*.*?\*/|(?m)(^|\s)//[^\n]*`),
	}
	plainTokens = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[A-Za-z_][A-Za-z_0-9]*|[0-9][0-9a-zA-Z_.]*|[^\sA-Za-z0-9_]`)
)

// tokens counts what a reader has to carry: line breaks, indentation and comments do not matter.
func tokens(suffix, text string) (n int) {
	if suffix != ".go" {
		return len(plainTokens.FindAllString(comments[suffix].ReplaceAllString(text, " "), -1))
	}
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(text)), []byte(text), nil, 0)
	for _, tok, lit := s.Scan(); tok != token.EOF; _, tok, lit = s.Scan() {
		if tok != token.SEMICOLON || lit != "\n" {
			n++
		}
	}
	return n
}

func weigh(t *testing.T, listed map[string]mass) map[string]mass {
	t.Helper()
	found := map[string]mass{}
	for _, suffix := range []string{".go", ".lua", ".sql", ".js", ".md"} {
		walk(t, suffix, func(name, text string) {
			if strings.Contains(name, "testdata/") || strings.Contains(name, "node_modules/") {
				return
			}
			room := path.Dir(name)
			for _, has := listed[room]; !has && room != "."; _, has = listed[room] {
				room = path.Dir(room)
			}
			switch m := found[room]; {
			case suffix == ".md":
				found["pages"] = mass{product: found["pages"].product + len(strings.Fields(text))}
			case strings.HasSuffix(name, "_test.go"), strings.HasSuffix(name, ".test.js"):
				m.tests += tokens(suffix, text)
				found[room] = m
			default:
				m.product += tokens(suffix, text)
				found[room] = m
			}
		})
	}
	return found
}

func TestNoRoomGrows(t *testing.T) {
	t.Parallel()
	text := read(t, "internal/docs/"+massFile)
	listed := map[string]mass{}
	for _, m := range massLine.FindAllStringSubmatch(text, -1) {
		var is mass
		_, err := fmt.Sscan(m[2]+" "+m[3], &is.product, &is.tests)
		require.NoError(t, err)
		listed[m[1]] = is
	}
	found := weigh(t, listed)
	require.Len(t, found, len(listed), "a room in %s has no file", massFile)
	if *lower {
		text = massLine.ReplaceAllStringFunc(text, func(line string) string {
			room := strings.Fields(line)[0]
			is, was := found[room], listed[room]
			return fmt.Sprintf("%-24s %7d %7d", room, min(is.product, was.product), min(is.tests, was.tests))
		})
		require.NoError(t, os.WriteFile(massFile, []byte(text), 0o600))
		return
	}
	for room, was := range listed {
		for what, by := range map[string]int{
			"code": found[room].product - was.product, "tests": found[room].tests - was.tests,
		} {
			require.LessOrEqual(t, by, slack, "the %s of %s has grown: what can go instead? "+
				"If nothing, raise its line in internal/docs/%s, and say why in the commit", what, room, massFile)
			require.GreaterOrEqual(t, by, -slack, "the %s of %s is smaller, so that its line may fall: "+
				"go test ./internal/docs -run NoRoomGrows -lower", what, room)
		}
	}
}
