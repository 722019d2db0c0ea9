package gateway

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
)

func TestWhatADeviceMayHaveStored(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	for name, row := range map[string]struct {
		paid            time.Duration // before now
		records, octets int
		waits           time.Duration
	}{
		"a new socket has nothing saved up":                  {0, 1, 60, 5 * time.Millisecond},
		"the most that a frame can wait":                     {0, 255, 8 << 10, 1275 * time.Millisecond},
		"large records cost what their bytes do":             {0, 1, 8 << 10, 249921875 * time.Nanosecond},
		"the largest frame":                                  {0, 1, 32<<10 + 12, 1000366210 * time.Nanosecond},
		"a device that reports now and then":                 {time.Minute, 20, 1280, 0},
		"the most that is saved up":                          {time.Hour, 2000, 1280, 0},
		"and not more":                                       {time.Hour, 2001, 1280, 5 * time.Millisecond},
		"what was used up before has to come back":           {-time.Second, 20, 1280, 1100 * time.Millisecond},
		"no records are free of charge but cost their bytes": {0, 0, 32, 976 * time.Microsecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paid := deviceRate.charge(now.Add(-row.paid), now, row.records, row.octets)
			require.InDelta(t, row.waits, max(0, paid.Sub(now)), float64(time.Millisecond))
		})
	}
}

// pours sends full frames back to back for d, and returns how many were acknowledged.
func (s *timed) pours(d time.Duration) (frames int) {
	s.t.Helper()
	for began := time.Now(); time.Since(began) < d; frames++ {
		s.send(frame(255))
		s.expect("000000ff")
	}
	return frames
}

func TestADeviceThatSendsTooMuchIsSlowedDownAndLosesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *timed) {
		s.login(imei)
		frames := s.pours(10 * time.Minute)
		require.InDelta(t, 600*200/255, frames, 1)
		require.Equal(t, float64(frames), testutil.ToFloat64(s.Gateway.metrics.slowed))
		<-time.After(time.Hour) // 2,000 records are saved up
		began := time.Now()
		for range 7 {
			s.send(frame(255))
			s.expect("000000ff")
		}
		require.Zero(t, time.Since(began))
		require.Equal(t, float64(frames), testutil.ToFloat64(s.Gateway.metrics.slowed))
	})
}

func TestADeviceGainsNothingByReconnecting(t *testing.T) {
	t.Parallel()
	manyInBubble(t, nil, func(t *testing.T, g *bubble) {
		stored := func() float64 { return testutil.ToFloat64(g.metrics.records.WithLabelValues("8")) }
		began := time.Now()
		var last *timed
		for range 1000 { // each takes the place of the one before, whose frame is not stored yet
			last = g.join()
			last.login(imei)
			last.send(frame(255))
			<-time.After(10 * time.Millisecond)
		}
		last.expect("000000ff")
		require.Equal(t, 255.0, stored())
		requireCount(t, 999, g.metrics.frames.WithLabelValues("8", "abandoned"))
		for range 100 { // each closes as soon as it has its acknowledgement
			s := g.join()
			s.login(imei)
			s.send(frame(255))
			s.expect("000000ff")
			require.NoError(t, s.Close())
		}
		require.LessOrEqual(t, stored(), 200*time.Since(began).Seconds())
	})
}

func TestAStopDoesNotWaitForADeviceThatIsSlowedDown(t *testing.T) {
	t.Parallel()
	var g *bubble
	began := time.Time{}
	manyInBubble(t, nil, func(t *testing.T, served *bubble) {
		s := served.join()
		s.login(imei)
		s.send(frame(255))
		go func() { _, _ = io.ReadFull(s, make([]byte, 4)) }() // a pipe holds nothing
		synctest.Wait()
		g, began = served, time.Now()
	}, func(t *testing.T) {
		require.Zero(t, time.Since(began))
		requireCount(t, 255, g.metrics.records.WithLabelValues("8"), "the frame under way was finished")
	})
}
