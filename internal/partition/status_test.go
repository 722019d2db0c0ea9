package partition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
)

func TestALeaderTellsOfThePassesOfPartitionsThatItLeads(t *testing.T) {
	t.Parallel()
	of := func(leads bool, o janitor.Outcome) janitor.Status {
		return janitor.Status{Leading: leads, Sweeps: []janitor.Report{{Sweep: "registry", Outcome: o, Scanned: 1}}}
	}
	for name, c := range map[string]struct {
		parts []janitor.Status
		want  janitor.Outcome
		of    int
	}{
		"led no more":            {[]janitor.Status{of(true, janitor.Done), of(false, janitor.Failed)}, janitor.Done, 1},
		"the first, led no more": {[]janitor.Status{of(false, janitor.Failed), of(true, janitor.Done)}, janitor.Done, 1},
		"both led":               {[]janitor.Status{of(true, janitor.Done), of(true, janitor.Failed)}, janitor.Failed, 2},
		"none led":               {[]janitor.Status{of(false, janitor.Done), of(false, janitor.Failed)}, janitor.Failed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got := statusOf(c.parts).Sweeps
			require.Len(t, got, 1)
			require.Equal(t, c.want, got[0].Outcome)
			require.Equal(t, c.of, got[0].Scanned)
		})
	}
}

// A right that only a leader uses may be missing in another partition than the one held longest.
func TestACheckThatIsOffInAnyPartitionIsTold(t *testing.T) {
	t.Parallel()
	of := func(held float64, off ...string) janitor.Status {
		return janitor.Status{Witness: janitor.WitnessStatus{LastTick: time.Now(), HeldFor: held, ChecksOff: off}}
	}
	got := statusOf([]janitor.Status{of(0, "restarted"), of(2), of(1, "log_trim", "restarted")}).Witness
	require.Equal(t, []string{"log_trim", "restarted"}, got.ChecksOff)
	require.InDelta(t, 2, got.HeldFor, 0)
}
