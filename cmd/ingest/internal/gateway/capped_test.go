package gateway

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAStreamOfLargeEntriesIsCappedByBytes(t *testing.T) {
	t.Parallel()
	const size = 32 << 10
	c := &capped{most: 1_000_000, bytes: 64 << 20}
	fits := c.bytes / (2*size + entryCost)
	for range fits * 9 / 10 {
		require.EqualValues(t, 1_000_000, c.room(size))
	}
	for range fits / 5 {
		c.room(size)
	}
	for range 2 * fits {
		require.LessOrEqual(t, c.room(size), fits)
	}
	require.InDelta(t, fits, c.room(size), float64(fits/20))
	for range 300_000 { // the large ones have gone
		c.room(10)
	}
	require.Greater(t, c.room(10), 100*fits)
	require.LessOrEqual(t, len(c.parts), finely+2)
	few := &capped{most: 10, bytes: 64 << 20}
	for range 10_000 {
		require.LessOrEqual(t, few.room(size), int64(10))
	}
}

func TestADevicesDeadLettersAreBoundedByBytes(t *testing.T) {
	t.Parallel()
	n := newNotes()
	add := func(i, size int) (surplus []string) {
		surplus = n.surplus("1", size, 100)
		n.addLetter("1", letter{fmt.Sprint("f", i), fmt.Sprint("e", i), size}, 100)
		return surplus
	}
	for i := range 100 {
		require.Empty(t, add(i, 10))
	}
	require.Equal(t, []string{"e0"}, add(100, 10))
	require.Empty(t, n.letter("1", "f0"))
	require.Equal(t, "e1", n.letter("1", "f1"))
	require.Len(t, add(101, shareBytes-50), 95, "five of ten bytes are left beside it")
	require.Len(t, add(102, shareBytes), 6)
	require.Equal(t, "e102", n.letter("1", "f102"))
}
