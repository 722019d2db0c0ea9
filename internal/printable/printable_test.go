package printable_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/printable"
)

const hostile = "a\x00\x1b[31m\u009b31m\u202eevil\u200b\u2066\ufeff\U000e0041é ü\u00a0z\r\n"

func TestJSONKeepsItsMeaning(t *testing.T) {
	t.Parallel()
	for _, text := range []string{hostile, "", "plain", `"\`, "\u2028", "\U0001f600"} {
		plain, err := json.Marshal(map[string]string{"k" + text: text})
		require.NoError(t, err)
		safe := printable.JSON(plain)
		require.NotRegexp(t, "[\u0080-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\U000e0041]", string(safe))
		var was, is map[string]string
		require.NoError(t, json.Unmarshal(plain, &was))
		require.NoError(t, json.Unmarshal(safe, &is))
		require.Equal(t, was, is)
	}
	untouched := []byte("{\n\t\"a\": \"é\u00a0\U0001f600\"\r\n}")
	require.Equal(t, untouched, printable.JSON(untouched))
}

func TestAPageShowsNumbersOfWhatHasNoGlyph(t *testing.T) {
	t.Parallel()
	require.Equal(t, "<b>a\\u{202e}b\\u{9b}\\u{fffd}</b>\n", string(printable.HTML([]byte("<b>a\u202eb\u009b\xff</b>\n"))))
}

func TestATextIsOneLine(t *testing.T) {
	t.Parallel()
	require.Equal(t, `a\x00\x1b[31m\u009b31m\u202eevil\u200b\u2066\ufeff\U000e0041é ü\u00a0z\r\n`, printable.Text(hostile))
	require.Equal(t, `c:\dir "x"`, printable.Text(`c:\dir "x"`))
}

func TestAWriterReportsWhatItWasGiven(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	n, err := printable.Writer(&b).Write([]byte("{\"a\":\"\u202e\"}\n"))
	require.NoError(t, err)
	require.Equal(t, 12, n)
	require.Equal(t, "{\"a\":\"\\u202e\"}\n", b.String())
}
