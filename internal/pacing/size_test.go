package pacing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSizesFollowWhatCallsTake(t *testing.T) {
	t.Parallel()
	s := NewSize(500)
	require.Equal(t, 500, s.Get())
	steps := func(want int, millis ...float64) {
		t.Helper()
		for _, ms := range millis {
			s.Took(time.Duration(ms * float64(time.Millisecond)))
		}
		require.Equal(t, want, s.Get())
	}
	steps(500, 0.8, 9, 9, 9, 0.8, 9, 9, 9, 1.5) // not while one of four is quick
	steps(250, 3, 3, 3, 3)
	steps(125, 3, 3, 3, 3)
	steps(50, 3, 3, 3, 3, 3, 3, 3, 3)
	steps(50, 1.5, 1.5, 1.5, 1.5)
	steps(100, 0.5, 9)
	steps(500, 0.5, 9, 9, 0.5, 9, 9, 0.5, 0, 0, 0, 0, 0, 0)

	s = NewSize(4) // a setting below the least is kept
	for range 3 * sizeCalls {
		s.Took(time.Second)
	}
	require.Equal(t, 4, s.Get())
}
