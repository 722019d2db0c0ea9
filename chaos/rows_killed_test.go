package chaos

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
)

// killedRows kill many replicas at one instant, the leader among them. Every replica contends, so
// the survivors elect one of themselves whatever the ranks of the dead.
var killedRows = []row{
	{41, "ThreeOfFourKilled", false, 40, nil, manyKilled(3, 4)},
	{41, "SixOfSevenKilled", false, 70, nil, manyKilled(6, 7)},
	{41, "ThreeOfTenKilled", false, 100, nil, manyKilled(3, 10)},
	{41, "NineOfTenKilled", false, 100, nil, manyKilled(9, 10)},
}

// manyKilled expects a new leader within two lease TTLs. The survivors have listened all the time,
// so that nothing holds; where most owners died, the dead are doubted for a grace period.
func manyKilled(victims, of int) func(w *environment) {
	return func(w *environment) {
		met := &calm{}
		w.fault = met
		for n := range of {
			w.Start(fmt.Sprintf("r%02d", n))
		}
		w.Spread(harness.Some(0, w.Fleet.Len()))
		w.rest()
		w.Listened()
		w.looks()
		leader := w.OneLeads()
		dead := append([]*harness.Replica{leader}, w.Others(leader)[:victims-1]...)
		at := time.Now()
		for _, r := range dead {
			w.Kill(r)
			met.hit(1)
		}
		w.OneLeads()
		w.within("a new leader", time.Since(at), 2*harness.LeaseTTL)
		w.rest()
		gone := harness.TTL + 2*harness.LeaseTTL + harness.JanitorInterval
		if 2*victims > of {
			gone += harness.GracePeriod
		}
		w.within("the dead owners' entries are gone", time.Since(at), gone)
		w.ends()
		v := w.judge()
		require.Equal(w.T, victims, met.hits())
		for _, h := range v.Holds {
			require.False(w.T, h.At.After(at), "%v", h)
		}
		require.Equal(w.T, victims*10, v.Evicted(""), "each replica held ten devices")
	}
}
