package device

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

const imei = "356307042441013"

// connected returns a device on s.
func connected(t *testing.T, s *server) *Device {
	t.Helper()
	d := New(imei, Options{Timeout: 10 * time.Second})
	t.Cleanup(d.Close)
	accepted, err := d.Connect(t.Context(), s.addr)
	require.NoError(t, err)
	require.True(t, accepted)
	s.requireEvent(t, "accepted "+imei)
	return d
}

// asJSON makes records comparable: their elements are views of different layouts.
func asJSON(records []teltonika.Record) (out []string) {
	for _, r := range records {
		io := r.IO.AppendJSON(nil)
		r.IO = teltonika.Elements{}
		out = append(out, fmt.Sprintf("%+v %s", r, io))
	}
	return out
}

func TestADeviceIsAcceptedAndItsRecordsAreAcknowledged(t *testing.T) {
	t.Parallel()
	s := setup(t)
	d := connected(t, s)
	track := NewTrack(1)
	for _, codec := range []teltonika.Codec{teltonika.Codec8, teltonika.Codec8E, teltonika.Codec16} {
		for _, n := range []int{1, 3, 0} {
			records := track.Next(n)
			acked, err := d.Send(t.Context(), codec, records...)
			require.NoError(t, err)
			require.Equal(t, n, acked)
			require.Equal(t, asJSON(records), asJSON(<-s.frames))
		}
	}
	require.NoError(t, d.KeepAlive(t.Context()))
	s.requireEvent(t, "keep-alive")
	d.Close()
	s.requireEvent(t, "closed")
	d.Close() // again is harmless
}

func TestARefusedDeviceHasNoSocket(t *testing.T) {
	t.Parallel()
	s := setup(t, func(s *server) { s.refuse = map[string]bool{imei: true} })
	for _, bad := range []string{imei, "12345", "35630704244101x"} {
		d := New(bad, Options{Timeout: 10 * time.Second})
		accepted, err := d.Connect(t.Context(), s.addr)
		require.NoError(t, err)
		require.False(t, accepted)
		_, err = d.Send(t.Context(), teltonika.Codec8)
		require.ErrorIs(t, err, ErrNotConnected)
		require.ErrorIs(t, d.WaitClosed(t.Context()), ErrNotConnected)
	}
}

func TestADeviceNoticesThatItsFrameIsNotAnswered(t *testing.T) {
	t.Parallel()
	s := setup(t, func(s *server) { s.mute = true })
	d := connected(t, s)
	t.Run("because the caller gave up", func(t *testing.T) {
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		go func() { <-s.events; cancel(gone) }()
		_, err := d.Send(ctx, teltonika.Codec8, NewTrack(1).Next(1)...)
		require.ErrorIs(t, err, gone)
	})
	t.Run("because its own time is up", func(t *testing.T) {
		d.opt.Timeout = time.Millisecond
		_, err := d.Send(t.Context(), teltonika.Codec8, NewTrack(1).Next(1)...)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, d.WaitClosed(t.Context()), context.DeadlineExceeded, "a silent socket is not a closed one")
	})
	t.Run("and can use the socket afterwards", func(t *testing.T) {
		d.opt.Timeout = 10 * time.Second
		s.requireEvent(t, "unanswered")
		require.NoError(t, d.KeepAlive(t.Context()))
		s.requireEvent(t, "keep-alive")
	})
}

func TestADeviceNoticesThatTheServerClosed(t *testing.T) {
	t.Parallel()
	s := setup(t)
	d := connected(t, s)
	frame, err := teltonika.AppendFrame(nil, teltonika.Codec8, NewTrack(1).Next(1)...)
	require.NoError(t, err)
	frame[len(frame)-1] ^= 1 // wrong CRC
	require.NoError(t, d.SendRaw(t.Context(), frame))
	require.NoError(t, d.WaitClosed(t.Context()))

	_, err = d.Send(t.Context(), teltonika.Codec8, NewTrack(1).Next(1)...)
	require.Error(t, err)
}

func TestANewSocketLeavesTheFormerOneOpenUntilItIsDropped(t *testing.T) {
	t.Parallel()
	s, other := setup(t), setup(t)
	d := connected(t, s)
	accepted, err := d.Connect(t.Context(), other.addr)
	require.NoError(t, err)
	require.True(t, accepted)
	_, err = d.Send(t.Context(), teltonika.Codec8, NewTrack(1).Next(1)...)
	require.NoError(t, err)
	require.Len(t, <-other.frames, 1, "the new socket is the present one")
	require.Empty(t, s.events, "the former has been closed too early")
	d.DropStale()
	s.requireEvent(t, "closed")
	_, err = d.Send(t.Context(), teltonika.Codec8, NewTrack(1).Next(1)...)
	require.NoError(t, err)
}
