package sim

import (
	"bytes"
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

// simulated runs a simulation on g until the test ends, or until stop is called.
func simulated(t *testing.T, g *gateway, cfg Config) (s *Simulation, stop func()) {
	t.Helper()
	cfg.Targets = []string{serve(t, g).addr}
	if cfg.Interval == 0 {
		cfg.Interval = 5 * time.Millisecond
	}
	if cfg.LadderUnit == 0 {
		cfg.LadderUnit = time.Millisecond
	}
	s, err := Simulate(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); s.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return s, stop
}

func TestEveryCodecIsSpokenAndASimulationThatStopsLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, codec := range []teltonika.Codec{teltonika.Codec8, teltonika.Codec8E, teltonika.Codec16} {
		g := &gateway{}
		s, stop := simulated(t, g, Config{Devices: 5, Codec: codec, Records: 3, Backlog: 25, Interval: 20 * time.Millisecond})
		await(t, func() bool { c := s.Counts(); return c.Acked > 200 && c.Backlog == 0 && c.KeepAlives > 0 })
		c := s.Counts()
		require.Equal(t, []int{5, 0, 0}, []int{c.Connected, c.Resent, c.Failed})
		require.Len(t, s.Where(), 5)
		require.Positive(t, c.Acknowledgements.Quantile(0.5))
		stop()
		require.Zero(t, s.Counts().Connected)
		require.Empty(t, s.Where())
		for _, raw := range g.raw() {
			require.Equal(t, byte(codec), raw[8])
			require.LessOrEqual(t, len(raw), 1280)
		}
	}
}

func TestAFrameWithoutItsAnswerIsSentAgainByteByByte(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		first func(s *socketOf) []byte // the answer to the first frame of all
		again int                      // how often the device has to connect again, at least
	}{
		"another number": {func(s *socketOf) []byte { return teltonika.AppendAck(nil, s.count+1) }, 0},
		"closed instead": {func(*socketOf) []byte { return nil }, 1},
		// until the device closes
		"silence": {func(s *socketOf) []byte { _, _ = io.Copy(io.Discard, s); return nil }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			g.answer = func(_ int, s *socketOf) []byte {
				if len(g.raw()) == 1 {
					return tt.first(s)
				}
				return teltonika.AppendAck(nil, s.count)
			}
			s, stop := simulated(t, g, Config{Devices: 1, Timeout: 500 * time.Millisecond})
			await(t, func() bool { return s.Counts().Acked >= 3 })
			stop()
			raw := g.raw()
			require.Equal(t, raw[0], raw[1])
			require.GreaterOrEqual(t, len(slices.CompactFunc(raw, bytes.Equal)), 3, "it goes on")
			require.GreaterOrEqual(t, s.Counts().Resent, 1)
			require.GreaterOrEqual(t, s.Counts().Reconnects, tt.again)
		})
	}
}

func TestTheLadderIsTheDocumentedOneAndAnAcknowledgementResetsIt(t *testing.T) {
	t.Parallel()
	one := &tracker{of: &Simulation{cfg: Config{LadderUnit: time.Minute}}}
	for _, want := range []int{0, 1, 1, 2, 2, 4, 6, 8, 10, 10, 10} {
		require.Equal(t, time.Duration(want)*time.Minute, one.climb())
	}

	g := &gateway{answer: func(_ int, s *socketOf) []byte { return teltonika.AppendAck(nil, s.count+1) }}
	began := time.Now()
	s, stop := simulated(t, g, Config{Devices: 1, LadderUnit: 30 * time.Millisecond})
	await(t, func() bool { hellos, _ := g.seen(); return hellos == 4 })
	require.GreaterOrEqual(t, time.Since(began), 4*30*time.Millisecond, "at once, 1, 1, 2: though each handshake succeeds")
	stop()
	require.Zero(t, s.Counts().Acked)
	require.GreaterOrEqual(t, len(g.raw()), 3*(1+mostRepeats))

	g = &gateway{answer: func(n int, s *socketOf) []byte {
		if n == 1 {
			return nil // closed, after one frame was acknowledged
		}
		return teltonika.AppendAck(nil, s.count)
	}}
	simulated(t, g, Config{Devices: 1, LadderUnit: time.Hour})
	await(t, func() bool { hellos, _ := g.seen(); return hellos >= 5 })

	s, _ = simulated(t, &gateway{accept: func(string) bool { return false }}, Config{Devices: 2})
	await(t, func() bool { return s.Counts().Refused >= 6 })
	require.ErrorIs(t, s.Counts().LastFailure, errRefused)
	require.Zero(t, s.Counts().Accepted)
}

func TestLostCoverageLeavesASocketHalfOpenUntilTheNextTime(t *testing.T) {
	t.Parallel()
	g := &gateway{}
	s, stop := simulated(t, g, Config{Devices: 20, Interval: 20 * time.Millisecond, LadderUnit: time.Hour})
	await(t, func() bool { return s.Counts().Connected == 20 })
	require.Zero(t, s.Counts().HalfOpen)
	require.Equal(t, 7, s.LoseCoverage(7))
	await(t, func() bool { c := s.Counts(); return c.HalfOpen == 7 && c.Connected == 20 && c.Reconnects == 7 })
	_, ends := g.seen()
	require.Zero(t, ends, "nobody told the server")
	s.DropStale()
	await(t, func() bool { _, ends := g.seen(); return ends == 7 })
	require.Equal(t, 20, s.Counts().Connected)
	stop()
	require.Zero(t, s.Counts().Failed)

	s, _ = simulated(t, &gateway{}, Config{Devices: 20, HalfOpen: 0.5, LadderUnit: time.Hour})
	await(t, func() bool { c := s.Counts(); return c.HalfOpen > 50 && c.Resent > 10 && c.Acked > 50 })
}

func TestCommandsAreAnswered(t *testing.T) {
	t.Parallel()
	mine, err := teltonika.ParseIMEI(imeiOf(firstIMEI, 0))
	require.NoError(t, err)
	other, err := teltonika.ParseIMEI(imei)
	require.NoError(t, err)
	commands := []struct {
		codec      teltonika.Codec
		to         teltonika.IMEI
		text, want string
		kind       teltonika.MessageType
	}{
		{teltonika.Codec12, teltonika.IMEI{}, "getinfo", "getinfo", teltonika.TypeResponse},
		{teltonika.Codec14, mine, "getver", "getver", teltonika.TypeResponse},
		{teltonika.Codec14, other, "getver", "", teltonika.TypeNACK},
	}
	for _, idle := range []bool{true, false} {
		g := &gateway{}
		g.answer = func(n int, s *socketOf) []byte {
			ack := teltonika.AppendAck(nil, s.count)
			if n >= len(commands) {
				return ack
			}
			c := commands[n]
			frame := commandFrame(t, c.codec, teltonika.Message{Type: teltonika.TypeCommand, IMEI: c.to, Text: []byte(c.text)})
			if idle {
				return append(ack, frame...)
			}
			return append(frame, ack...) // crossed with the frame on the way
		}
		s, _ := simulated(t, g, Config{Devices: 1})
		for _, c := range commands {
			want := teltonika.Message{Type: c.kind, Text: []byte(c.want)}
			if c.codec == teltonika.Codec14 {
				want.IMEI = mine
			}
			require.Equal(t, want, <-g.answers)
		}
		await(t, func() bool { return s.Counts().Acked > 3 })
		require.Equal(t, 3, s.Counts().Commands)
		require.Zero(t, s.Counts().Resent)
	}
}

func TestAfterATimeWithoutAnAnswerAFrameHasMoreRecords(t *testing.T) {
	t.Parallel()
	g := &gateway{}
	g.answer = func(n int, s *socketOf) []byte {
		if n == 0 {
			time.Sleep(60 * time.Millisecond) // thirty intervals
		}
		return teltonika.AppendAck(nil, s.count)
	}
	s, _ := simulated(t, g, Config{Devices: 1, Interval: 2 * time.Millisecond, Records: 2})
	await(t, func() bool { return s.Counts().Acked > 3 })
	require.Equal(t, byte(MostRecords), g.raw()[1][9], "five intervals in one frame")
}

func TestABacklogIsEmptiedNewestFirstAndBeforeWhatFollows(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 9, 10, 11, 37, 200} {
		s, err := Simulate(Config{Devices: 1, Targets: []string{"127.0.0.1:1"}, Backlog: n})
		require.NoError(t, err)
		one, at := s.trackers[0], uint64(Epoch+n*Step)
		require.Equal(t, at, one.track.Next(1)[0].Timestamp, "what follows is newer than the backlog")
		for records := one.backlog(); len(records) > 0; records = one.backlog() {
			require.LessOrEqual(t, len(records), MostRecords)
			for _, r := range records {
				at -= Step
				require.Equal(t, at, r.Timestamp)
			}
		}
		require.Equal(t, uint64(Epoch), at)
	}
}

func TestEachDeviceHasAnIMEIThatChecksAndASeedMakesTheSameFleet(t *testing.T) {
	t.Parallel()
	drawn := func(seed uint64) (imeis []string, records []any) {
		s, err := Simulate(Config{Devices: 200, Targets: []string{"127.0.0.1:1"}, Seed: seed, Backlog: 3})
		require.NoError(t, err)
		for _, one := range s.trackers {
			imeis = append(imeis, one.IMEI())
			records = append(records, asJSON(append(one.backlog(), one.track.Next(2)...)))
		}
		return imeis, records
	}
	imeis, records := drawn(7)
	_, same := drawn(7)
	_, others := drawn(8)
	require.Equal(t, records, same)
	require.NotEqual(t, records, others)
	require.NotEqual(t, records[0], records[1])
	for _, one := range imeis {
		require.Len(t, one, 15)
		require.True(t, teltonika.LuhnValid(one))
	}
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(imeis))), 200)
	require.Len(t, imeiOf(MostFirstIMEI, MostDevices), 15)
}

func TestAQuantileIsNeverTooLowAndAnEighthTooHighAtMost(t *testing.T) {
	t.Parallel()
	for _, us := range []int{0, 1, 7, 8, 15, 16, 17, 100, 999, 123_456, 29_999_999, 1 << 40} {
		var l Latency
		d := time.Duration(us) * time.Microsecond
		l.Add(d)
		got := l.Quantile(0.5)
		require.GreaterOrEqual(t, got, d)
		require.LessOrEqual(t, got, d+d/8+time.Microsecond)
	}
	var l Latency
	for i := range 100 {
		l.Add(time.Duration(i+1) * time.Millisecond)
	}
	require.InDelta(t, 50, l.Quantile(0.5).Milliseconds(), 7)
	require.InDelta(t, 99, l.Quantile(0.99).Milliseconds(), 13)
	require.Zero(t, new(Latency).Quantile(0.5))
}
