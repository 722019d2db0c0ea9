package pacing

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSizesFollowWhatCallsTake(t *testing.T) {
	t.Parallel()
	s := NewSize(500)
	require.Equal(t, 250, s.Get())
	steps := func(want int, targets ...float64) { // calls of the current size, in targets
		t.Helper()
		for _, n := range targets {
			s.Took(s.Get(), time.Duration(n*float64(sizeTarget)))
		}
		require.Equal(t, want, s.Get())
	}
	steps(500, 0.4, 0.4, 0.4, 0.4, 0.4, 0.8)
	steps(500, 0.8, 9, 9, 9, 0.8, 9, 9, 9, 0.8) // not while one in four is quick
	steps(500, 1.5, 1.5, 1.5, 1.5)
	steps(250, 3, 3, 3, 3)
	steps(125, 3, 3, 3, 3)
	steps(50, 3, 3, 3, 3, 3, 3, 3, 3)
	steps(50, 0.6, 0.6) // 100 would take 1.2 targets
	steps(150, 0.4, 0.4, 0.9)
	s.Took(10, sizeTarget*3/10) // ten elements prove nothing about two hundred
	steps(150)
	s.Took(10, sizeTarget/100)
	steps(200)

	s = NewSize(4) // a setting below the least is kept
	for range 3 * sizeCalls {
		s.Took(s.Get(), time.Second)
	}
	require.Equal(t, 4, s.Get())
}
