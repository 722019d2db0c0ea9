package device

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTracksOfOneSeedAreTheSame(t *testing.T) {
	t.Parallel()
	a, b, other := NewTrack(7), NewTrack(7), NewTrack(8)
	all := a.Next(100)
	require.Equal(t, asJSON(all), asJSON(append(b.Next(40), b.Next(60)...)))
	require.NotEqual(t, asJSON(all), asJSON(other.Next(100)))
	for i, r := range all {
		require.Equal(t, uint64(Epoch+i*Step), r.Timestamp)
		require.InDelta(t, 252_797_000, r.Longitude, 5_000_000)
		require.InDelta(t, 546_872_000, r.Latitude, 5_000_000)
	}
}
