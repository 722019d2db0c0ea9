package janitor_test

import (
	"sync/atomic"
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/stretchr/testify/require"
)

// dry returns a janitor in dry-run mode, and a count of the pages that it reads of the index of
// "dead".
func (f *fleet) dry(every time.Duration) (r *replica, pages *atomic.Int64) {
	pages = &atomic.Int64{}
	r = f.replica("r1", func(c *Config) {
		c.DryRun, c.Interval, c.DeleteBatch = true, every, 5
		c.Client.AddHook(slowed("hscan", scanTakes))
		c.Client.AddHook(counted("sscan", pages))
	})
	return r, pages
}

func (r *replica) quickPasses() int {
	return int(r.value("janitor_passes_total", "sweep", "owners", "outcome", string(Done)))
}

func TestADryRunLooksAtADeadOwnersIndexOnceAnInterval(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.indexed("dead", 400)
		r, pages := f.dry(time.Minute)
		defer r.start()()
		pass(30 * time.Second)
		require.Positive(f, pages.Load())
		perLook := pages.Load()
		passes := r.quickPasses()
		require.InDelta(f, 30, passes, 3)
		pass(10 * time.Minute)
		require.InDelta(f, 10*60, r.quickPasses()-passes, 20, "it looks at the heartbeats each second all the same")
		require.InDelta(f, 11*perLook, pages.Load(), float64(perLook))
		require.InDelta(f, 10, r.scans("dry_run"), 2, "a scan each interval, however dear")
		for _, sweep := range []string{"owners", "registry"} {
			rep := r.report(sweep)
			require.True(f, rep.DryRun)
			require.Equal(f, Done, rep.Outcome)
			require.Equal(f, 400, rep.Condemned)
			require.Zero(f, rep.Evicted)
		}
		f.has(400, "dead")
		require.Zero(f, f.recorded())
		require.True(f, f.SIsMember(f.Context(), f.Roster(), "dead").Val())
	})
}

func TestADryRunsReportsAreRightBetweenItsLooks(t *testing.T) {
	inBubble(t, func(f *fleet) {
		f.indexed("dead", 300)
		f.dies("odd")
		f.do("SET", f.Devices("odd"), "no set")
		f.do("SADD", f.Roster(), "odd")
		r, pages := f.dry(time.Hour)
		r.leads()
		more := func(n int) {
			passes := r.quickPasses()
			f.eventually(func() bool { return r.quickPasses() >= passes+n })
		}
		more(2)
		once := pages.Load()
		require.Positive(f, once)
		rep := r.report("owners")
		require.Equal(f, 300, rep.Condemned, "what is known is said again")
		require.Equal(f, map[SkipReason]int{SkipUnreadable: 1}, rep.Spared)
		require.Less(f, rep.Scanned, 300, "and was not read again")

		// A requested pass reads the current state.
		f.indexed("dead", 310)
		require.Equal(f, 310, r.sweep(Request{})["owners"].Condemned)
		twice := pages.Load()
		require.Greater(f, twice, once)
		require.Equal(f, 310, r.sweep(Request{Owner: "dead", DryRun: true})["owners"].Condemned)
		require.Greater(f, pages.Load(), twice)
		more(1)
		require.Equal(f, 310, r.report("owners").Condemned)

		// An owner that is back is no longer condemned; one that dies then is read again.
		f.live("dead")
		f.eventually(func() bool { return r.report("owners").Condemned == 0 })
		f.indexed("dead", 320)
		f.dies("dead")
		f.eventually(func() bool { return r.report("owners").Condemned == 320 })
		f.has(320, "dead")
	})
}

// A requested dry run always reads, and leaves nothing behind for real passes.
func TestADryRunOnDemandIsNotRemembered(t *testing.T) {
	inBubble(t, func(f *fleet) {
		r := f.leader()
		require.NoError(f, r.Pause(f.Context(), Pause{Who: "test", Until: time.Now().Add(time.Hour)}))
		f.indexed("dead", 40)
		require.Equal(f, 40, r.sweep(Request{Owner: "dead", DryRun: true})["owners"].Condemned)
		require.Equal(f, 40, r.sweep(Request{Owner: "dead", DryRun: true})["owners"].Condemned)
		require.NoError(f, r.Resume(f.Context()))
		f.eventually(func() bool { return r.counted("dead") == 40 })
		f.has(0, "dead")
	})
}
