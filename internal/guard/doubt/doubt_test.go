package doubt_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/rollcall-redis/rollcall/internal/guard/doubt"
)

func TestRecordsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	r := Record{Last: 1_700_000_000_000, TTL: 90_000, Due: 38_000, Born: 5, Back: 0, State: Idle}
	require.Equal(t, "1700000000000/90000/38000/5/0/i", r.String())
	require.Equal(t, r, Parse(r.String()))
	for _, text := range []string{
		"", "1", "1/0/1/1/1/h", "1/1/1/1/1/x", "1/1/1/1/1/hh", "-1/1/1/1/1/h", "1/1/1/1/1/h/", "1//1/1/1/h",
		"1/1/1/1/9999999999999999/h",
	} {
		require.Zero(t, Parse(text), text)
	}
}
