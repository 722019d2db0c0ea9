package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// looksLikeA tells whether a name can be made by a template, of any values.
func looksLikeA(t *Template, name string) bool { return t.matches(0, name, new([]string)) }

// inAny lets any variable hold anything.
func inAny(string) *[256]bool { return inValue }

// inName lets a variable hold what it can hold as a part of a key.
func inName(string) *[256]bool { return inKey }

func mustTemplate(t *testing.T, text string) *Template {
	t.Helper()
	parsed, err := ParseTemplate(text, true)
	require.NoError(t, err)
	return parsed
}

func TestPatternsMeetIfOneNameLooksLikeBoth(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		holds func(string) *[256]bool
		meet  bool
	}{
		{"match:{match}", "match:{match}:ratings", inName, false},
		{"match:{match}", "match:{match}:ratings", inAny, true},
		{"match:{match}*", "match:{match}:ratings", inName, true},
		{"match:{match}:user:*", "match:{match}:ratings", inName, false},
		{"bots:{bot}", "bots:active", inName, true},
		{"bots:state:{bot}", "bots:active", inName, false},
		{"a{x}b", "aab", inName, true},
		{"a{x}b", "ab", inName, false},
		{"a{x}b", "ab", inAny, true},
		{"a{x}b{y}c", "abbbc", inName, true},
		{"a*", "b*", inName, false},
		{"a{x}z", "a{x}y*", inName, true},
		{"{{a}}:{x}", "{{b}}:{x}", inName, false},
	} {
		a, b := mustTemplate(t, c.a), mustTemplate(t, c.b)
		require.Equal(t, c.meet, a.pattern(c.holds).meets(b.pattern(c.holds)), "%s and %s", c.a, c.b)
		require.Equal(t, c.meet, b.pattern(c.holds).meets(a.pattern(c.holds)), "%s and %s", c.b, c.a)
	}
}

func TestOnlyWhatMayBeMistakenIsUnclear(t *testing.T) {
	for text, unclear := range map[string]string{
		"s:{a}": "", "s:{a}:{b}": "", "s:{a}x": "", "s:{a}:*": "", "s:{{{a}}}:{b}": "",
		"s:{a}*": "a", "s:{a}-{b}": "a", "s:{a}:{b}x*": "b", "s:{a}x{b}:*": "a",
	} {
		name, ok := mustTemplate(t, text).clear(inName)
		require.Equal(t, unclear == "", ok, text)
		require.Equal(t, unclear, name, text)
	}
	_, ok := mustTemplate(t, "s:{a}:{b}").clear(inAny)
	require.False(t, ok)
	_, ok = mustTemplate(t, "s:{a}:*").clear(func(string) *[256]bool { return inOnly })
	require.True(t, ok)
}

// What a variable can hold, by the shapes that Rule.Only knows, is what the pattern takes it for.
func TestTheShapesHoldNothingThatAPatternDoesNotExpect(t *testing.T) {
	for shape, is := range forms {
		for b := range 256 {
			if text := string([]byte{byte(b)}); !inOnly[b] {
				require.False(t, is.MatchString(text), shape)
				require.False(t, is.MatchString(strings.Repeat(text, 24)), shape)
				require.False(t, is.MatchString("0123456789abcdef0123456"+text), shape)
			}
		}
	}
	require.True(t, HasForm("65f0c0ffee65f0c0ffee65f0", "objectid"))
	require.False(t, HasForm("65f0c0ffee65f0c0ffee65f", "objectid"))
	require.True(t, HasForm("0b0e7bd8-6ff2-4bb6-b5a6-3c3a9ad1ac41", "uuid"))
	require.True(t, HasForm("-42", "integer"))
	require.False(t, HasForm("42\n", "integer"))
}

// A name that looks like a template is read and written without a change, and SCAN's pattern finds
// it.
func FuzzTemplate(f *testing.F) {
	f.Add("match:{match}:ratings", "match:1:ratings", "1", "2")
	f.Add("s:{a}:{b}", "s:x:y", "a", "b")
	f.Add("{{x}}:{a}", "{x}:[1]*", "[", "?")
	f.Add("s:{a}-{a}*", "s:1-1:z", "\xff", "-")
	f.Fuzz(func(t *testing.T, text, name, one, two string) {
		tpl, err := ParseTemplate(text, false)
		if err != nil {
			return
		}
		if values, ok := tpl.Match(name); ok {
			again, all := tpl.Expand(values)
			require.True(t, all)
			require.Equal(t, name, again)
		}
		values := map[string]string{}
		for i, variable := range tpl.Variables() {
			values[variable] = []string{one, two}[i%2]
		}
		made, all := tpl.Expand(values)
		require.True(t, all)
		if strings.ContainsAny(one+two, ":{}") || one == "" || two == "" {
			return
		}
		require.True(t, looksLikeA(tpl, made))
		require.True(t, tpl.pattern(inName).meets(textPattern(made, false)), "%q of %q", made, text)
		if _, ok := tpl.clear(inName); ok {
			read, ok := tpl.Match(made)
			require.True(t, ok)
			require.Equal(t, values, read)
		}
	})
}

// Two patterns meet just if one of all names looks like both. The shortest such name is no longer
// than both together.
func FuzzPatternsMeet(f *testing.F) {
	f.Add("a{x}b", "a*")
	f.Add("a{x}:b", "a{x}b")
	f.Add("a{x}a", "aaaa")
	f.Fuzz(func(t *testing.T, a, b string) {
		p, err := ParseTemplate(a, true)
		q, err2 := ParseTemplate(b, true)
		short, short2 := strings.ReplaceAll(a, "{x}", "x"), strings.ReplaceAll(b, "{x}", "x")
		if err != nil || err2 != nil || len(short+short2) > 6 || strings.Trim(a+b, "ab:x{}*") != "" {
			return
		}
		found := false
		var try func(name string)
		try = func(name string) {
			found = found || looksLikeA(p, name) && looksLikeA(q, name)
			for i := 0; !found && len(name) < len(short+short2) && i < 6; i++ {
				try(name + "ab:x{}"[i:i+1])
			}
		}
		try("")
		require.Equal(t, found, p.pattern(inName).meets(q.pattern(inName)), "%q and %q", a, b)
	})
}
