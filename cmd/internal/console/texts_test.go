package console

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A hundred viewers that do not read would else keep a hundred copies of the fleet.
func TestEveryViewerIsSentTheSameBytes(t *testing.T) {
	t.Parallel()
	f := &fleet{self: func() self { return self{} }}
	r := &reading{n: 1}
	f.texts(r)
	one, other := tellFleet(nil, r), tellFleet(nil, r)
	require.NotEmpty(t, one)
	require.Same(t, &one[0], &other[0])
	r.changes = []byte(`{}`)
	last := &reading{n: 0}
	one, other = tellFleet(last, r), tellFleet(last, r)
	require.Same(t, &one[0], &other[0])
	one, other = r.fleetText(), r.fleetText()
	require.Same(t, &one[0], &other[0])
}
