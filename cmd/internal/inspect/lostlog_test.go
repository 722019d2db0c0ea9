package inspect

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

func TestALostLogHidesNoLeader(t *testing.T) {
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		l := setup(t, w)
		ctx := t.Context()
		term := l.term(time.Minute)
		require.NoError(t, l.Set(ctx, l.keys.Lease(), "two/x", time.Minute).Err())
		epochKey := "{" + l.keys.Lease() + "}:epoch"
		require.NoError(t, l.Set(ctx, epochKey, term, 0).Err())
		boot := fmt.Sprintf("%016d%010d", l.now.Add(-time.Hour).UnixMicro(), 7)
		beat := fmt.Sprintf("%d/%s", l.now.UnixMilli(), boot)
		require.NoError(t, l.Set(ctx, l.keys.Heartbeat("two"), beat, time.Minute).Err())
		describes := func(epochs ...int64) {
			about := About{Boot: boot, Program: "ingest"}
			for _, e := range epochs {
				about.Passes = append(about.Passes, janitor.Report{Sweep: "owners", Epoch: uint64(e)})
			}
			text, err := json.Marshal(about)
			require.NoError(t, err)
			require.NoError(t, l.Set(ctx, l.keys.About("two"), text, 0).Err())
		}
		leads := func(yes bool, epoch int64, why string) {
			t.Helper()
			s := l.status()
			led, sentence := l.led()
			require.Equal(t, yes, led, "%s: %s", why, sentence)
			require.EqualValues(t, epoch, s.Leader.Epoch, why)
			require.Equal(t, yes, s.Leader.LogLost, why)
			require.Equal(t, yes, slices.Contains(names(s), "log"), why)
			require.Equal(t, !yes, slices.Contains(names(s), "leader"), why)
			d := l.doctor()
			require.Equal(t, yes, finding(t, d.Checks, "leader").Level == OK, why)
			require.Equal(t, yes, finding(t, d.Checks, "log").Level == Warning, why)
		}
		leads(true, term, "it lives, and describes itself nowhere")
		describes()
		leads(false, 0, "it reports no pass yet")
		describes(term - 1000)
		leads(false, 0, "it reports a pass of an earlier term")
		describes(term-1000, term)
		leads(true, term, "it reports a pass of this term")
		require.NoError(t, l.Del(ctx, epochKey).Err())
		leads(true, term, "the epoch is lost too")

		l.evicted(term, 5, 0, "seven", "owners", 1)
		s := l.status()
		require.False(t, s.Leader.LogLost, "an eviction began a new log")
		require.Zero(t, s.Leader.Epoch, "the record is of another leader")
	})
}
