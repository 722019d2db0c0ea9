package janitor_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/stretchr/testify/require"
)

// scanTakes is the duration of a page if full scans are expensive: a thousand times that exceeds
// the longest gap.
const scanTakes = time.Second

// quiet is a fleet in which the full scan is expensive and finds nothing: r1 leads, and other holds
// a hundred devices.
func quiet(t *testing.T, takes time.Duration, test func(f *fleet, r *replica, stopOther func())) {
	t.Helper()
	inBubble(t, func(f *fleet) {
		stop := f.beat("other")
		defer stop()
		f.indexed("other", 100)
		r := f.starts(func(c *Config) {
			c.Interval = time.Minute
			c.Client.AddHook(slowed("hscan", takes))
		})
		pass(5*time.Minute + 30*time.Second)
		test(f, r, stop)
	})
}

// scans returns the number of full scans for a reason.
func (r *replica) scans(reason string) int {
	return int(r.value("janitor_full_scans_total", "reason", reason))
}

func TestAFullScanRunsAgainWithinAnIntervalWhereItCanFindSomething(t *testing.T) {
	t.Parallel()
	for reason, c := range map[string]struct {
		change func(f *fleet, r *replica)
		after  time.Duration // 0: an interval
	}{
		"unindexed": {change: func(f *fleet, _ *replica) { f.entries("older", 10) }},
		"stale_index": {change: func(f *fleet, _ *replica) {
			f.do("SADD", f.Devices("other"), "no entry")
		}},
		"silent": {change: func(f *fleet, _ *replica) {
			f.do("SADD", f.Roster(), "gone")
			f.dies("gone")
		}},
		"unknown": {change: func(f *fleet, _ *replica) {
			f.do("SADD", f.Roster(), "odd")
			f.do("SET", f.Heartbeat("odd"), "0/0")
			f.do("SET", f.Devices("odd"), "x")
		}},
		"hold": {after: grace + time.Minute, change: func(f *fleet, _ *replica) {
			f.do("HDEL", f.Witness(), "last")
		}},
		"asked": {change: func(f *fleet, r *replica) {
			require.Equal(f, 100, r.sweep(Request{})["registry"].Scanned)
		}},
		"term": {change: func(f *fleet, r *replica) { require.NoError(f, r.Resign(f.Context())) }},
	} {
		t.Run(reason, func(t *testing.T) {
			quiet(t, scanTakes, func(f *fleet, r *replica, _ func()) {
				before := r.scans(reason)
				c.change(f, r)
				pass(max(c.after, time.Minute) + 30*time.Second)
				require.Greater(t, r.scans(reason), before)
				f.has(0, "older")
				f.has(100, "other")
			})
		})
	}
}

func TestAFullScanThatCanFindNothingIsPutOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ takes, gap time.Duration }{
		"until it costs 0.05 % of a core": {150 * time.Millisecond, 5 * time.Minute},
		"a quarter of an hour at most":    {4 * time.Second, 15 * time.Minute},
		"not where it is cheap":           {time.Millisecond, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			quiet(t, c.takes, func(f *fleet, r *replica, _ func()) {
				begun := time.Now()
				before := r.scans("interval")
				pass(time.Hour)
				require.InDelta(t, float64(time.Hour/c.gap), r.scans("interval")-before, 1)
				require.Equal(t, 1, r.scans("term"))

				status := r.Status().FullScan
				require.Equal(t, "interval", status.Reason)
				require.Equal(t, 100, status.Scanned)
				require.Equal(t, c.gap, status.NextBy.Sub(status.Started).Round(10*time.Second))
				require.InDelta(t, float64(status.NextBy.Unix()), r.value("janitor_full_scan_due_timestamp_seconds"), 1)

				// The metric behind alerts continues, and the page shows the last pass that read
				// something.
				require.InDelta(t, float64(time.Now().Unix()),
					r.value("janitor_last_success_timestamp_seconds", "sweep", "registry"), 61)
				done := r.value("janitor_passes_total", "sweep", "registry", "outcome", "done")
				require.InDelta(t, time.Since(begun).Minutes()+5, done, 2)
				require.Equal(t, 100, r.report("registry").Scanned)
				require.True(t, r.Status().Leading)

				require.NoError(t, r.Pause(f.Context(), Pause{Who: "me", Why: "test"}))
				pass(time.Minute)
				require.Equal(t, Held, r.report("registry").Outcome, "also while no full scan is due")
				require.NoError(t, r.Resume(f.Context()))
				pass(time.Minute)
				require.Equal(t, Done, r.report("registry").Outcome)
			})
		})
	}
}

func TestAFullScanThatFailedIsDueAgain(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.indexed("r1", 10)
		var scans atomic.Int64
		r := f.starts(func(c *Config) {
			c.Interval = time.Minute
			c.Client.AddHook(slowed("hscan", scanTakes))
			c.Client.AddHook(before("hscan", func() error {
				if scans.Add(1) == 1 {
					return errors.New("away")
				}
				return nil
			}))
		})
		pass(2 * time.Minute)
		require.Equal(f, 1, r.scans("term"))
		require.Equal(f, 1, r.scans("unfinished"))
		require.Equal(f, Done, r.report("registry").Outcome)
	})
}

func TestWhatHidesFromTheCountIsFoundAtTheLongestGap(t *testing.T) {
	quiet(t, scanTakes, func(f *fleet, r *replica, _ func()) {
		f.entries("older", 10)
		for i := range 10 {
			f.do("SADD", f.Devices("other"), fmt.Sprint("moved ", i))
		}
		pass(5 * time.Minute)
		f.has(10, "older")
		pass(8 * time.Minute)
		f.has(0, "older")
		require.Equal(t, 1, r.scans("interval"))
	})
}

func TestADeathThatTheQuickWaySweepsNeedsNoFullScan(t *testing.T) {
	quiet(t, scanTakes, func(f *fleet, r *replica, stopOther func()) {
		defer f.beat("third")() // so that most live
		defer f.beat("fourth")()
		pass(time.Minute)
		stopOther()
		pass(3 * time.Minute)
		f.has(0, "other")
		for _, reason := range []string{"unindexed", "stale_index", "interval", "unlisted"} {
			require.Zero(f, r.scans(reason), reason)
		}
	})
}
