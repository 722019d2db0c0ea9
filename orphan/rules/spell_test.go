package rules

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestSpelledNamesAreReadBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a", "ä", `App\User`, `\x00`, `\x5cx00`, `\\x5\x41`, "\\\x01", `\xA` + "\xff", `\x`, `\xg0`, "\x00", "\x7f", "\xff", "a\xc3", "\xf0\x9f\x98\x80\xff", "\ufffd",
		`"\`, "\xe2\x80", "\u2028", "<a&b>", "\xed\xa0\x80"} {
		require.False(t, strings.ContainsFunc(Spell(name), func(r rune) bool { return r < ' ' || r == 0x7f }) || !utf8.ValidString(Spell(name)), "%q", name)
		require.Equal(t, name, Unspell(Spell(name)))
	}
}
