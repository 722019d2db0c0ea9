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
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// connected returns a device on g.
func connected(t *testing.T, g *gateway) *Device {
	t.Helper()
	d := New(imei, 10*time.Second)
	t.Cleanup(d.Close)
	require.NoError(t, d.Move(t.Context(), g.addr))
	return d
}

func TestWithoutAnAnswerADeviceGivesUpAndMayGoOn(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 1), make(chan struct{})
	g := serve(t, &gateway{answer: func(n int, s *socketOf) []byte {
		wait.Nudge(asked)
		<-release
		return teltonika.AppendAck(nil, s.count)
	}})
	d := connected(t, g)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(io.ErrClosedPipe)
	}()
	_, err := d.Report(ctx, 1)
	require.ErrorIs(t, err, io.ErrClosedPipe)
	d.timeout = time.Millisecond
	_, err = d.Send(t.Context(), teltonika.Codec8)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	close(release)
	acked, _, err := d.Receive(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, acked)
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
