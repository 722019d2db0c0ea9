package availability

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

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
