package simulate

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/device"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestTheLadderIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	var l ladder
	climb := func(n int) (minutes []int) {
		for range n {
			minutes = append(minutes, int(l.climb(time.Minute)/time.Minute))
		}
		return minutes
	}
	require.Equal(t, []int{0, 1, 1, 2, 2, 4, 6, 8, 10, 10, 10}, climb(11))
	l.reset()
	require.Equal(t, []int{0, 1}, climb(2))
	require.Equal(t, 10*time.Millisecond, l.climb(10*time.Millisecond))
}

func TestABacklogIsEmptiedNewestFirstAndWhole(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 9, 10, 11, 37, 200} {
		track, whole := device.NewTrack(5), device.NewTrack(5)
		var b backlog
		b.store(track, n)
		want := whole.Next(n)
		slices.Reverse(want)
		var got []teltonika.Record
		for frame := b.take(); frame != nil; frame = b.take() {
			require.LessOrEqual(t, len(frame), MostRecords)
			got = append(got, frame...)
		}
		require.Equal(t, times(want), times(got), n)
		require.Zero(t, b.left)
		require.Equal(t, whole.Next(1)[0].Timestamp, track.Next(1)[0].Timestamp, "what follows is newer than the backlog")
	}
}

// times returns the times of records, which identify them.
func times(records []teltonika.Record) []uint64 {
	out := []uint64{}
	for i := range records {
		out = append(out, records[i].Timestamp)
	}
	return out
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

func TestEachDeviceHasAnIMEIThatChecks(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for i := range 500 {
		imei := imeiOf(firstIMEI, i)
		require.Len(t, imei, 15)
		require.True(t, teltonika.LuhnValid(imei))
		require.False(t, seen[imei])
		seen[imei] = true
	}
	require.Len(t, imeiOf(MostFirstIMEI, MostDevices), 15)
}

func TestTheSameSeedMakesTheSameFleet(t *testing.T) {
	t.Parallel()
	records := func(seed uint64) (out [][]teltonika.Record) {
		f, err := New(Config{Devices: 3, Targets: []string{"127.0.0.1:1"}, Seed: seed})
		require.NoError(t, err)
		for i := range f.trackers {
			all := f.trackers[i].track.Next(20)
			for j := range all {
				all[j].IO = teltonika.Elements{}
			}
			out = append(out, all)
		}
		return out
	}
	require.Equal(t, records(7), records(7))
	require.NotEqual(t, records(7), records(8))
	require.NotEqual(t, records(7)[0], records(7)[1])
}

func TestTheViewIsOneLineOnATerminalAndALineEveryTenSecondsElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, err := New(Config{Devices: 4, Targets: []string{"127.0.0.1:1"}, Backlog: 3})
		require.NoError(t, err)
		for _, terminal := range []bool{true, false} {
			var out bytes.Buffer
			asked := 0
			v := View{Fleet: f, Out: &out, Terminal: terminal, Routable: func(context.Context) (int, error) {
				if asked++; asked == 2 {
					return 0, errors.New("away")
				}
				f.count(func(c *Counts) { c.Frames += 20 })
				return 3, nil
			}}
			ctx, cancel := context.WithTimeout(t.Context(), 24500*time.Millisecond)
			v.progress(ctx)
			cancel()
			lines := strings.Count(out.String(), "\n")
			if terminal {
				require.Equal(t, 1, lines)
				require.Equal(t, 24, strings.Count(out.String(), "\r"))
				require.Contains(t, out.String(), "frames/s 20.0  acknowledged 0  re-sent 0  backlog 12  routable 3")
				require.Contains(t, out.String(), "routable unknown")
				continue
			}
			require.Equal(t, 2, lines, out.String())
			require.Contains(t, out.String(), "   10s  connected 0/4  frames/s 2.0")
		}
	})
}
