package availability

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

func TestHeartbeatsReachTheSourceEachIfItIsNewer(t *testing.T) {
	swept(t, []State{silent("a"), silent("b"), silent("odd")}, func(t *testing.T, l *leader) {
		l.source.settings.RequirePing = false
		_, err := l.Heartbeat(t.Context(), "a")
		require.NoError(t, err)
		before := l.source.state("b").Seen
		require.NoError(t, l.client.Set(t.Context(), l.keys.heartbeat("odd"), "yesterday", 0).Err())
		report := l.pass("availability_heartbeats")
		require.Equal(t, janitor.Done, report.Outcome)
		require.Equal(t, 3, report.Scanned)
		require.Equal(t, map[janitor.SkipReason]int{janitor.SkipUnreadable: 1}, report.Spared)
		require.WithinDuration(t, time.Now(), l.source.state("a").Seen, time.Minute)
		require.Equal(t, before, l.source.state("b").Seen)
		require.Equal(t, int64(1), l.source.state("a").Version, "a heartbeat takes no version")
		require.InDelta(t, 1, testutil.ToFloat64(l.metrics.mirrored), 0)
	})
}

func TestTheLeaderReconciles(t *testing.T) {
	swept(t, []State{online("a"), online("b")}, func(t *testing.T, l *leader) {
		require.NoError(t, l.client.SRem(t.Context(), l.keys.online(), "a").Err())
		report := l.pass("availability_reconcile")
		require.Equal(t, janitor.Done, report.Outcome)
		require.Equal(t, 2, report.Scanned)
		l.same()
		require.Equal(t, map[string]int{Differs: 1}, l.Health().Drift)
		require.NoError(t, l.client.Del(t.Context(), l.keys.seeded(), l.keys.online()).Err())
		l.pass("availability_reconcile")
		require.Equal(t, 1, l.drift(Differs), "what is not whole is seeded, and no drift")
	})
}

func TestAJanitorWithAnotherPrefixIsRefusedByName(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(), slowly)
		l := r.leads(w.Options, guard.Layout{Prefix: w.Prefix + "other:"}, false)
		l.source.put(silent("a"))
		l.seeded()
		reports := l.sweep("")
		for _, sweep := range l.Sweeps() {
			name, report := sweep.Name(), reports[sweep.Name()]
			require.Equal(t, janitor.Failed, report.Outcome, name)
			require.Contains(t, report.Error, "both need the same Layout", name)
			require.Contains(t, report.Error, w.Prefix+"other:", name)
		}
		require.Contains(t, l.Health().Offline, "both need the same Layout")
	})
}
