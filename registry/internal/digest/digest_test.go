package digest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/registry/internal/digest"
)

func TestADigestIsOfTheEntriesInAnyOrder(t *testing.T) {
	t.Parallel()
	var a, b, c digest.Digest
	for i := range 1000 {
		a.Add(fmt.Sprint(i))
		b.Add(fmt.Sprint(999 - i))
		c.Add(fmt.Sprint(i + 1))
	}
	require.Equal(t, a, b)
	require.NotEqual(t, a, c)
	c.Add("0")
	c.Remove("1000")
	require.Equal(t, a, c)
	a.Add("0")
	require.NotEqual(t, a, c, "an entry that a scan met twice")
}

func TestWhatAScanMetIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	s := digest.Finding{Count: 3, Took: 1500 * time.Millisecond, Expiry: 30 * time.Minute}
	s.Digest.Add("1")
	s.Digest.Add("2")
	got, err := digest.Parse(s.String())
	require.NoError(t, err)
	require.Equal(t, s, got)
	for _, bad := range []string{"", "x", "3 1500", "3 1500 1800000 zz", "3 1500 1800000 00ff", "3 1500 x " + s.String()} {
		_, err := digest.Parse(bad)
		require.Error(t, err, bad)
	}
}
