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
		c.DryRun, c.Interval = true, every
		c.Client.AddHook(counted("sscan", pages))
	})
	return r, pages
}

func (r *replica) quickPasses() int {
	return int(r.value("janitor_passes_total", "sweep", "owners", "outcome", string(Done)))
}

func TestADryRunLooksAtADeadOwnersIndexOnceAnInterval(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.indexed("dead", 400)
		r, pages := f.dry(time.Minute)
		defer r.start()()
		pass(30 * time.Second)
		require.Positive(t, pages.Load())
		perLook := pages.Load()
		passes := r.quickPasses()
		require.InDelta(t, 30, passes, 3)
		pass(10 * time.Minute)
		require.InDelta(t, 10*60, r.quickPasses()-passes, 20, "it looks at the heartbeats each second all the same")
		require.InDelta(t, 11*perLook, pages.Load(), float64(perLook))
		require.Equal(t, 400, r.report("owners").Condemned)
		require.Equal(t, 400, f.left("dead"))
		require.Zero(t, f.recorded())
	})
}

func TestADryRunsReportsAreRightBetweenItsLooks(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		f.indexed("dead", 300)
		f.dies("odd")
		f.must(f.Set(t.Context(), f.Devices("odd"), "no set", 0))
		f.must(f.SAdd(t.Context(), f.Roster(), "odd"))
		r, pages := f.dry(time.Hour)
		r.leads()
		more := func(n int) {
			passes := r.quickPasses()
			f.eventually(func() bool { return r.quickPasses() >= passes+n })
		}
		more(2)
		once := pages.Load()
		require.Positive(t, once)
		rep := r.report("owners")
		require.Equal(t, 300, rep.Condemned, "what is known is said again")
		require.Equal(t, map[SkipReason]int{SkipUnreadable: 1}, rep.Spared)
		require.Less(t, rep.Scanned, 300, "and was not read again")

		// A requested pass reads the current state.
		f.indexed("dead", 310)
		require.Equal(t, 310, r.sweep(Request{})["owners"].Condemned)
		twice := pages.Load()
		require.Greater(t, twice, once)
		require.Equal(t, 310, r.sweep(Request{Owner: "dead", DryRun: true})["owners"].Condemned)
		require.Greater(t, pages.Load(), twice)
		more(1)
		require.Equal(t, 310, r.report("owners").Condemned)

		// An owner that is back is no longer condemned; one that dies then is read again.
		f.live("dead")
		f.eventually(func() bool { return r.report("owners").Condemned == 0 })
		f.indexed("dead", 320)
		f.dies("dead")
		f.eventually(func() bool { return r.report("owners").Condemned == 320 })
		require.Equal(t, 320, f.left("dead"))
	})
}

// A requested dry run always reads, and leaves nothing behind for real passes.
func TestADryRunOnDemandIsNotRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", nil)
		r.leads()
		require.NoError(t, r.Pause(t.Context(), Pause{Who: "test", Until: time.Now().Add(time.Hour)}))
		f.indexed("dead", 40)
		require.Equal(t, 40, r.sweep(Request{Owner: "dead", DryRun: true})["owners"].Condemned)
		require.Equal(t, 40, r.sweep(Request{Owner: "dead", DryRun: true})["owners"].Condemned)
		require.NoError(t, r.Resume(t.Context()))
		f.eventually(func() bool { return r.counted("dead") == 40 })
		require.Zero(t, f.left("dead"))
	})
}
