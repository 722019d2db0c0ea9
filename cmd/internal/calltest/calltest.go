// Package calltest tests a tool by scripts of calls:
//
//	0 find 356307042441013 ~ ^one holds 356307042441013
//	3 find 356307042441014 ~ ^nobody holds
package calltest

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Tells makes the calls of a script, a line each: the status, the arguments, and after ~ a regular
// expression that the output matches. Words are replaced in the script, in pairs.
func Tells(t testing.TB, call func(args ...string) (status int, said string), script string, words ...string) {
	t.Helper()
	script = strings.NewReplacer(words...).Replace(script)
	for text := range strings.Lines(script) {
		made, says, _ := strings.Cut(strings.TrimSpace(text), " ~ ")
		args := strings.Fields(made)
		if len(args) == 0 {
			continue
		}
		status, said := call(args[1:]...)
		require.Equal(t, args[0], strconv.Itoa(status), "%s:\n%s", made, said)
		require.Regexp(t, regexp.MustCompile("(?m)"+says), said, made)
	}
}
