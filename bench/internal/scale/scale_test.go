package scale

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// simple prices: a trip costs ten floors of 1 µs, all else what is easy to count.
func simple(t *testing.T) Prices {
	t.Helper()
	p, err := ReadPrices("../../prices.json")
	require.NoError(t, err)
	return p
}

func TestTheFormulaIsTheSteadyStateThatIsSimulated(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]Fleet{
		"one server":       {Devices: 100_000, Replicas: 50, Masters: 1, Partitions: 1, Registrations: 50, Lookups: 500, Records: 3000},
		"a small Cluster":  {Devices: 1_000_000, Replicas: 100, Masters: 3, Partitions: 16, Registrations: 500},
		"many more":        {Devices: 10_000_000, Replicas: 300, Masters: 6, Partitions: 128, Records: 100_000},
		"other intervals":  {Devices: 500_000, Replicas: 20, Masters: 3, Partitions: 8, Interval: 10 * time.Second, Scan: 5 * time.Minute},
		"hardly a device":  {Devices: 10, Replicas: 10, Masters: 3, Partitions: 4},
		"fewer partitions": {Devices: 1_000_000, Replicas: 10, Masters: 3, Partitions: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := simple(t)
			p.Cold = 1
			f := f.WithDefaults(p)
			watched := 15 * time.Minute // so that each partition has a full scan
			got := Simulate(p, f, Scenario{For: watched})
			require.InEpsilon(t, Load(p, f), got.Total().Seconds()/watched.Seconds(), 0.1, "%v", got.By)
			require.Zero(t, got.Late)
		})
	}
}
