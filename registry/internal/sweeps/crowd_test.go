package sweeps

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAScanAmongRubbishKeepsABoundedNumberOfOwners(t *testing.T) {
	t.Parallel()
	w, b := &scan{later: map[string]bool{}}, newBatcher(&sweeps{}, nil)
	for i := range metMost {
		w.leave(fmt.Sprint(i))
		b.leave(fmt.Sprint(i))
	}
	w.leave("0")
	require.False(t, w.crowd)
	w.leave("one more")
	require.True(t, w.crowd, "the second walk is about all the dead")
	require.Len(t, w.later, metMost)
	b.leave("one more")
	require.Equal(t, map[string]bool{"one more": true}, b.left)
}
