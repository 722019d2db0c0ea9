package janitor_test

import (
	"testing"
	"time"

	. "github.com/rollcall-redis/rollcall/janitor"

	"github.com/stretchr/testify/require"
)

func TestServersCountWhatAFullScanCanFind(t *testing.T) {
	inWorlds(t, func(t *testing.T, f *fleet) {
		r := f.replica("r1", func(c *Config) {
			c.Interval = 100 * time.Millisecond
			c.Client.AddHook(slowed{"hscan", 200 * time.Millisecond}) // postpones the next one by minutes
		})
		f.live("other")
		f.indexed("other", 20)
		r.leads()
		passes := func() float64 { return r.value("janitor_passes_total", "sweep", "registry", "outcome", "done") }
		f.eventually(func() bool { return passes() > 10 })
		require.Equal(t, 1, r.scans("term"))
		for _, reason := range []string{"unindexed", "stale_index", "interval", "unknown", "silent"} {
			require.Zero(t, r.scans(reason), reason)
		}

		f.entries("older", 10) // no heartbeat, index or roster entry
		f.eventually(func() bool { return r.scans("unindexed") > 0 })
		require.Zero(t, f.left("older"))

		require.NoError(t, f.SAdd(t.Context(), f.Devices("other"), "no entry").Err())
		f.eventually(func() bool { return r.scans("stale_index") > 0 })
		require.NoError(t, f.SRem(t.Context(), f.Devices("other"), "no entry").Err())

		require.NoError(t, f.Set(t.Context(), f.Devices("r1"), "no set", 0).Err())
		f.eventually(func() bool { return r.scans("unknown") > 0 })
		require.NoError(t, f.Del(t.Context(), f.Devices("r1")).Err())
		require.Equal(t, 20, f.left("other"))

		at := passes() + 5
		f.eventually(func() bool { return passes() > at })
		before := r.Status().FullScan.Started
		at += 10
		f.eventually(func() bool { return passes() > at })
		require.Equal(t, before, r.Status().FullScan.Started, "all is as it should be again")
	})
}
