package gateway

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The socket starts to wait for its device just after it was asked to stop: nothing else would
// end it.
func TestASocketThatWaitsAgainAfterTheReplicaWasToldToStopEnds(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	g := &Gateway{}
	g.stopping, g.stop = context.WithCancel(t.Context())
	s := newSession(g, theirs)
	require.NoError(t, s.within(time.Minute, endIdle))
	g.stop()
	require.ErrorIs(t, s.within(time.Minute, endIdle), errDraining)
	require.NoError(t, ours.Close())
	require.NoError(t, theirs.Close())
	err := s.within(time.Minute, endIdle)
	require.ErrorIs(t, err, io.ErrClosedPipe, "a socket that is closed takes no deadline")
}
