package simulate

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

func TestEveryCodecIsSpokenAndAFleetThatStopsLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, codec := range []teltonika.Codec{teltonika.Codec8, teltonika.Codec8E, teltonika.Codec16} {
		g := serve(t, &gateway{})
		f, stop := fleetOn(t, Config{Devices: 5, Targets: []string{g.addr}, Codec: codec, Records: 3, Backlog: 25, Interval: 20 * time.Millisecond})
		await(t, func() bool { c := f.Counts(); return c.Acked > 200 && c.Backlog == 0 && c.KeepAlives > 0 })
		c := f.Counts()
		require.Equal(t, 5, c.Connected)
		require.Len(t, f.Where(), 5)
		require.Zero(t, c.Resent)
		require.Zero(t, c.Failed)
		require.Positive(t, c.Acknowledgements.Quantile(0.5))
		stop()
		require.Zero(t, f.Counts().Connected)
		require.Empty(t, f.Where())
		for _, raw := range g.raw() {
			require.Equal(t, byte(codec), raw[8])
			require.LessOrEqual(t, len(raw), 1280)
		}
	}
}

func TestAFrameWithoutItsAnswerIsSentAgainByteByByte(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		first func(s *socket) []byte // the answer to the first frame of all
		again int                    // how often the device has to connect again, at least
	}{
		{"another number", func(s *socket) []byte { return teltonika.AppendAck(nil, s.count+1) }, 0},
		{"closed instead", func(*socket) []byte { return nil }, 1},
		// until the device closes
		{"silence", func(s *socket) []byte { _, _ = io.Copy(io.Discard, s); return nil }, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			g.answer = func(_ int, s *socket) []byte {
				if len(g.raw()) == 1 {
					return tt.first(s)
				}
				return teltonika.AppendAck(nil, s.count)
			}
			serve(t, g)
			f, stop := fleetOn(t, Config{Devices: 1, Targets: []string{g.addr}, Timeout: 500 * time.Millisecond})
			await(t, func() bool { return f.Counts().Acked >= 3 })
			stop()
			raw := g.raw()
			require.Equal(t, raw[0], raw[1])
			require.GreaterOrEqual(t, len(slices.CompactFunc(raw, bytes.Equal)), 3, "it goes on")
			require.GreaterOrEqual(t, f.Counts().Resent, 1)
			require.GreaterOrEqual(t, f.Counts().Reconnects, tt.again)
		})
	}
}

func TestASocketWithoutTheRightAnswerIsClosedAndTheLadderIsClimbed(t *testing.T) {
	t.Parallel()
	g := serve(t, &gateway{answer: func(_ int, s *socket) []byte { return teltonika.AppendAck(nil, s.count+1) }})
	f, stop := fleetOn(t, Config{Devices: 1, Targets: []string{g.addr}, LadderUnit: 30 * time.Millisecond})
	began := time.Now()
	await(t, func() bool { return g.greeted() == 4 })
	require.GreaterOrEqual(t, time.Since(began), 4*30*time.Millisecond, "at once, 1, 1, 2: though each handshake succeeds")
	stop()
	require.Zero(t, f.Counts().Acked)
	require.GreaterOrEqual(t, len(g.raw()), 3*(1+mostRepeats))
}

func TestAnAcknowledgementResetsTheLadder(t *testing.T) {
	t.Parallel()
	g := serve(t, &gateway{answer: func(n int, s *socket) []byte {
		if n == 1 {
			return nil // closed, after one frame was acknowledged
		}
		return teltonika.AppendAck(nil, s.count)
	}})
	fleetOn(t, Config{Devices: 1, Targets: []string{g.addr}, LadderUnit: time.Hour})
	await(t, func() bool { return g.greeted() >= 5 })
}

func TestARefusedFleetTriesAgainAndSaysWhy(t *testing.T) {
	t.Parallel()
	g := serve(t, &gateway{accept: func(string) bool { return false }})
	f, _ := fleetOn(t, Config{Devices: 2, Targets: []string{g.addr}})
	await(t, func() bool { return f.Counts().Refused >= 6 })
	c := f.Counts()
	require.Zero(t, c.Accepted)
	require.ErrorIs(t, c.LastFailure, errRefused)
}

func TestLostCoverageLeavesASocketHalfOpenUntilTheNextTime(t *testing.T) {
	t.Parallel()
	g := serve(t, &gateway{})
	f, stop := fleetOn(t, Config{Devices: 20, Targets: []string{g.addr}, Interval: 20 * time.Millisecond, LadderUnit: time.Hour})
	await(t, func() bool { return f.Counts().Connected == 20 })
	require.Zero(t, f.Counts().HalfOpen)
	require.Equal(t, 7, f.LoseCoverage(7))
	await(t, func() bool { return f.Counts().HalfOpen == 7 })
	await(t, func() bool { c := f.Counts(); return c.Connected == 20 && c.Reconnects == 7 })
	require.Zero(t, g.ended(), "nobody told the server")
	f.DropStale()
	await(t, func() bool { return g.ended() == 7 })
	require.Equal(t, 20, f.Counts().Connected)
	stop()
	require.Zero(t, f.Counts().Failed)

	f, _ = fleetOn(t, Config{Devices: 20, Targets: []string{g.addr}, HalfOpen: 0.5, LadderUnit: time.Hour})
	await(t, func() bool { c := f.Counts(); return c.HalfOpen > 50 && c.Resent > 10 && c.Acked > 50 })
}

func TestCommandsAreAnswered(t *testing.T) {
	t.Parallel()
	mine, err := teltonika.ParseIMEI(imeiOf(firstIMEI, 0))
	require.NoError(t, err)
	other, err := teltonika.ParseIMEI("352093081452251")
	require.NoError(t, err)
	commands := []struct {
		codec      teltonika.Codec
		send, want teltonika.Message
	}{
		{teltonika.Codec12, teltonika.Message{Text: []byte("getinfo")}, teltonika.Message{Type: teltonika.TypeResponse, Text: []byte("getinfo")}},
		{teltonika.Codec14, teltonika.Message{IMEI: mine, Text: []byte("getver")}, teltonika.Message{Type: teltonika.TypeResponse, IMEI: mine, Text: []byte("getver")}},
		{teltonika.Codec14, teltonika.Message{IMEI: other, Text: []byte("getver")}, teltonika.Message{Type: teltonika.TypeNACK, IMEI: mine, Text: []byte{}}},
	}
	for _, idle := range []bool{true, false} {
		g := &gateway{}
		g.answer = func(n int, s *socket) []byte {
			if n >= len(commands) {
				return teltonika.AppendAck(nil, s.count)
			}
			m := commands[n].send
			m.Type = teltonika.TypeCommand
			frame, err := teltonika.AppendMessages(nil, commands[n].codec, m)
			if err != nil {
				return nil
			}
			if idle {
				return append(teltonika.AppendAck(nil, s.count), frame...)
			}
			return append(frame, teltonika.AppendAck(nil, s.count)...) // crossed with the frame on the way
		}
		serve(t, g)
		f, _ := fleetOn(t, Config{Devices: 1, Targets: []string{g.addr}})
		for _, c := range commands {
			select {
			case got := <-g.answers:
				require.Equal(t, c.want, got)
			case <-time.After(patience):
				require.Fail(t, "no answer")
			}
		}
		await(t, func() bool { return f.Counts().Acked > 3 })
		require.Equal(t, 3, f.Counts().Commands)
		require.Zero(t, f.Counts().Resent)
	}
}

func TestAfterATimeWithoutAnAnswerAFrameHasMoreRecords(t *testing.T) {
	t.Parallel()
	g := serve(t, &gateway{})
	var away sync.WaitGroup
	away.Add(1)
	held := false
	g.answer = func(_ int, s *socket) []byte {
		if !held { // one device, one socket, so one goroutine
			held = true
			away.Wait()
		}
		return teltonika.AppendAck(nil, s.count)
	}
	f, _ := fleetOn(t, Config{Devices: 1, Targets: []string{g.addr}, Interval: 2 * time.Millisecond, Records: 2})
	await(t, func() bool { return len(g.raw()) == 1 })
	time.AfterFunc(60*time.Millisecond, away.Done) // thirty intervals
	await(t, func() bool { return f.Counts().Acked > 3 })
	raw := g.raw()
	require.Equal(t, byte(MostRecords), raw[1][9], "five intervals in one frame")
}
