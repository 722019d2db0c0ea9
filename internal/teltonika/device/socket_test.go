package device

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

// piped returns a connected device whose server is the test.
func piped(t *testing.T) (*Device, net.Conn) {
	mine, theirs := net.Pipe()
	d := New(imei, Options{})
	d.present = &socket{Conn: mine}
	t.Cleanup(func() { d.Close(); _ = theirs.Close() })
	return d, theirs
}

// wired is piped over loopback, where a socket ends like a real one.
func wired(t *testing.T) (*Device, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	mine, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	theirs, err := ln.Accept()
	require.NoError(t, err)
	d := New(imei, Options{})
	d.present = &socket{Conn: mine}
	t.Cleanup(func() { d.Close(); _ = theirs.Close() })
	return d, theirs
}

func commandFrame(t *testing.T, text string) []byte {
	t.Helper()
	frame, err := teltonika.AppendMessages(nil, teltonika.Codec12, teltonika.Message{Type: teltonika.TypeCommand, Text: []byte(text)})
	require.NoError(t, err)
	return frame
}

func TestADeviceReceivesAnswersAndCommandsHoweverTheyAreCut(t *testing.T) {
	t.Parallel()
	response, err := teltonika.AppendMessages(nil, teltonika.Codec12, teltonika.Message{Type: teltonika.TypeResponse})
	require.NoError(t, err)
	said := slices.Concat(teltonika.AppendAck(nil, 3), commandFrame(t, "getinfo"), response, commandFrame(t, ""),
		teltonika.AppendAck(nil, 255)) // the response is not a command: a device skips it
	for size := 1; size <= len(said); size++ {
		d, server := wired(t)
		go func() {
			for piece := range slices.Chunk(said, size) {
				_, _ = server.Write(piece)
			}
			_ = server.Close()
		}()
		for _, want := range []string{"3", "getinfo", "", "255"} {
			h, err := d.Receive(t.Context())
			require.NoError(t, err)
			if h.Commands == nil {
				require.Equal(t, map[string]int{"3": 3, "255": 255}[want], h.Acked)
				continue
			}
			require.Equal(t, []Command{{Codec: teltonika.Codec12, Text: want}}, h.Commands)
		}
		_, err := d.Receive(t.Context())
		require.ErrorIs(t, err, io.EOF)
	}
}

func TestWhatHasArrivedWhenTimeIsUpIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, server := piped(t)
		frame := commandFrame(t, "setdigout 1")
		go func() {
			for _, b := range frame {
				time.Sleep(time.Minute)
				_, _ = server.Write([]byte{b})
			}
		}()
		begun, late := time.Now(), 0
		for {
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			h, err := d.Receive(ctx)
			cancel()
			if err == nil {
				require.Equal(t, "setdigout 1", h.Commands[0].Text)
				break
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			late++
		}
		require.Equal(t, time.Duration(len(frame))*time.Minute, time.Since(begun))
		require.Positive(t, late)
	})
}

func TestWhatIsNoFrameOfCommandsIsAnError(t *testing.T) {
	t.Parallel()
	bad := commandFrame(t, "getver")
	bad[len(bad)-1] ^= 1
	for _, tt := range []struct {
		name string
		said []byte
		want error
	}{
		{"a wrong CRC", bad, teltonika.ErrCRC},
		{"a length beyond all bounds", []byte{0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF}, teltonika.ErrTooLong},
		{"a length too small", []byte{0, 0, 0, 0, 0, 0, 0, 2}, teltonika.ErrTooShort},
		{"half an answer", []byte{0, 0}, io.ErrUnexpectedEOF},
		{"nothing", nil, io.EOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d, server := wired(t)
			go func() {
				_, _ = server.Write(tt.said)
				_ = server.Close()
			}()
			_, err := d.Receive(t.Context())
			require.ErrorIs(t, err, tt.want)
		})
	}
	_, err := New(imei, Options{}).Receive(t.Context())
	require.ErrorIs(t, err, ErrNotConnected)
}
