package sim

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// connected returns a device on g.
func connected(t *testing.T, g *gateway) *Device {
	t.Helper()
	d := New(imei, 10*time.Second)
	t.Cleanup(d.Close)
	require.NoError(t, d.Move(t.Context(), g.addr))
	return d
}

func TestRecordsAreAcknowledgedUntilTheServerCloses(t *testing.T) {
	t.Parallel()
	g := serve(t, &gateway{})
	d := connected(t, g)
	require.Equal(t, g.addr, d.At())
	for _, codec := range []teltonika.Codec{teltonika.Codec8, teltonika.Codec8E, teltonika.Codec16} {
		for _, n := range []int{1, 3, 0} {
			acked, err := d.Send(t.Context(), codec, NewTrack(1).Next(n)...)
			require.NoError(t, err)
			require.Equal(t, n, acked)
		}
	}
	require.Len(t, g.raw(), 9)
	frame := g.raw()[0]
	frame[len(frame)-1] ^= 1 // wrong CRC
	require.NoError(t, d.SendRaw(t.Context(), frame))
	require.NoError(t, d.WaitClosed(t.Context()))
	_, err := d.Report(t.Context(), 1)
	require.Error(t, err)
	d.Close()
	d.Close() // again is harmless
	require.Empty(t, d.At())
}

func TestARefusedDeviceHasNoSocket(t *testing.T) {
	t.Parallel()
	g := serve(t, &gateway{accept: func(string) bool { return false }})
	for _, bad := range []string{imei, "12345", "35630704244101x"} {
		d := New(bad, 0)
		accepted, err := d.Connect(t.Context(), g.addr)
		require.NoError(t, err)
		require.False(t, accepted)
		require.ErrorContains(t, d.Move(t.Context(), g.addr), "refused by "+g.addr)
		_, err = d.Report(t.Context(), 1)
		require.ErrorIs(t, err, ErrNotConnected)
		require.ErrorIs(t, d.WaitClosed(t.Context()), ErrNotConnected)
		_, _, err = d.Receive(t.Context())
		require.ErrorIs(t, err, ErrNotConnected)
	}
}

func TestWithoutAnAnswerADeviceGivesUpAndMayGoOn(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	g := serve(t, &gateway{answer: func(n int, s *socketOf) []byte {
		<-release
		return teltonika.AppendAck(nil, s.count)
	}})
	d := connected(t, g)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		for len(g.raw()) == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel(io.ErrClosedPipe)
	}()
	_, err := d.Report(ctx, 1)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	d.timeout = time.Millisecond
	require.ErrorIs(t, d.WaitClosed(t.Context()), context.DeadlineExceeded, "a silent socket is not a closed one")
	close(release)
	acked, _, err := d.Receive(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, acked)
}

func TestANewSocketLeavesTheFormerOneOpenUntilItIsDropped(t *testing.T) {
	t.Parallel()
	g, other := serve(t, &gateway{}), serve(t, &gateway{})
	fleet := NewFleet(3, 350_000_000_000_000, 10*time.Second)
	defer fleet.Close()
	require.NoError(t, fleet[0].Move(t.Context(), g.addr))
	for _, d := range fleet[:2] {
		require.NoError(t, d.Move(t.Context(), other.addr))
		_, err := d.Report(t.Context(), 1)
		require.NoError(t, err)
	}
	require.Len(t, other.raw(), 2, "the new socket is the present one")
	require.Equal(t, map[string]string{fleet[0].IMEI(): other.addr, fleet[1].IMEI(): other.addr}, fleet.Where())
	_, ends := g.seen()
	require.Zero(t, ends, "the former has been closed too early")
	fleet.DropStale()
	await(t, func() bool { _, ends := g.seen(); return ends == 1 })
	require.Equal(t, []int{0, 1}, fleet.Lost(other.addr))
	require.Empty(t, fleet.Where())
}

// wired returns a device whose server is the test.
func wired(t *testing.T) (*Device, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	mine, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	theirs, err := ln.Accept()
	require.NoError(t, err)
	d := New(imei, 0)
	d.present = newSocket(mine, "")
	t.Cleanup(func() { d.Close(); _ = theirs.Close() })
	return d, theirs
}

func TestADeviceReceivesAnswersAndCommandsHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	command := func(text string) []byte {
		return commandFrame(t, teltonika.Codec12, teltonika.Message{Type: teltonika.TypeCommand, Text: []byte(text)})
	}
	response := commandFrame(t, teltonika.Codec12, teltonika.Message{Type: teltonika.TypeResponse})
	said := slices.Concat(teltonika.AppendAck(nil, 3), command("getinfo"), response, command(""),
		teltonika.AppendAck(nil, 255)) // the response is not a command: a device skips it
	for size := 1; size <= len(said); size += 1 + size/8 {
		d, server := wired(t)
		go func() {
			for piece := range slices.Chunk(said, size) {
				_, _ = server.Write(piece)
			}
			_ = server.Close()
		}()
		for _, want := range []any{3, "getinfo", "", 255} {
			acked, commands, err := d.Receive(t.Context())
			require.NoError(t, err)
			if text, is := want.(string); is {
				require.Equal(t, []Command{{Codec: teltonika.Codec12, Text: text}}, commands)
			} else {
				require.Equal(t, want, acked)
			}
		}
		_, _, err := d.Receive(t.Context())
		require.ErrorIs(t, err, io.EOF)
	}

	bad := command("getver")
	bad[len(bad)-1] ^= 1
	for want, said := range map[error][]byte{
		teltonika.ErrCRC: bad, teltonika.ErrTooLong: {0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF}, io.ErrUnexpectedEOF: {0, 0}, io.EOF: nil,
	} {
		d, server := wired(t)
		_, err := server.Write(said)
		require.NoError(t, err)
		require.NoError(t, server.Close())
		_, _, err = d.Receive(t.Context())
		require.ErrorIs(t, err, want)
	}
}

func TestWhatHasArrivedWhenTimeIsUpIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mine, server := net.Pipe()
		d := New(imei, 0)
		d.present = newSocket(mine, "")
		defer d.Close()
		frame := commandFrame(t, teltonika.Codec12, teltonika.Message{Type: teltonika.TypeCommand, Text: []byte("setdigout 1")})
		go func() {
			for _, b := range frame {
				time.Sleep(time.Minute)
				_, _ = server.Write([]byte{b})
			}
		}()
		for late := 0; ; late++ {
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			_, commands, err := d.Receive(ctx)
			cancel()
			if err == nil {
				require.Equal(t, "setdigout 1", commands[0].Text)
				require.Positive(t, late)
				return
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	})
}

// asJSON makes records comparable: their elements are views of different layouts.
func asJSON(records []teltonika.Record) (out []any) {
	for _, r := range records {
		io := string(r.IO.AppendJSON(nil))
		r.IO = teltonika.Elements{}
		out = append(out, r, io)
	}
	return out
}

func TestTracksOfOneSeedAreTheSame(t *testing.T) {
	t.Parallel()
	a, b := NewTrack(7), NewTrack(7)
	all := a.Next(100)
	require.Equal(t, asJSON(all), asJSON(append(b.Next(40), b.Next(60)...)))
	require.NotEqual(t, asJSON(all), asJSON(NewTrack(8).Next(100)))
	for i, r := range all {
		require.Equal(t, uint64(Epoch+i*Step), r.Timestamp)
		require.InDelta(t, 252_797_000, r.Longitude, 5_000_000)
		require.InDelta(t, 546_872_000, r.Latitude, 5_000_000)
	}
}
