package redistest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// User has an ACL user's rules from a page: the arguments of `redis-cli ACL SETUSER name` there,
// with the password PASSWORD.
func User(t testing.TB, page, name string) (rules []any) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	line := regexp.MustCompile(`(?s)redis-cli ACL SETUSER ` + regexp.QuoteMeta(name) + ` (.*?)\n` + "```").
		FindStringSubmatch(string(text))
	require.NotNil(t, line, "no user %s in %s", name, page)
	for rule := range strings.FieldsSeq(strings.ReplaceAll(line[1], "\\\n", " ")) {
		rules = append(rules, strings.Trim(rule, "'"))
	}
	return rules
}
