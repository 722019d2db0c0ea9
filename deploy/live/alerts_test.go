package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

// A scene is an alert, and a fault in a healthy fleet by which it has to fire alone.
type scene struct {
	alert string
	fault string // for people
	fleet func(r *rig)
	// strike makes the fault. What lasts is run in the background, which ends with the test. nil: the
	// fault is a setting of the fleet.
	strike func(r *rig)
}

// Settings that are as much shorter as the alerts are. A lease of 0.75 s would be lost to hitches
// of this machine: it stays at 2 s, which is less than the 6 s that nobody may lead.
var (
	beats    = []string{"HEARTBEAT_INTERVAL=1500ms", "HEARTBEAT_TTL=4500ms"}
	quick    = append([]string{"JANITOR_INTERVAL=3s", "JANITOR_LEASE_TTL=2s"}, beats...)
	trackers = sim.Config{Devices: 20, Interval: time.Second, LadderUnit: time.Second,
		Timeout: 10 * time.Second}
	wanderers = sim.Config{ // who connect again and again
		Devices: 20, Interval: time.Second, LadderUnit: 200 * time.Millisecond, HalfOpen: 0.3,
		FirstIMEI: 86_000_000_000_000, Timeout: 2 * time.Second,
	}
)

// ingest is a fleet of three replicas with devices.
func ingest(more ...string) func(r *rig) {
	return func(r *rig) {
		r.several(3, "ingest", slices.Concat(quick, more)...)
		r.devices(trackers)
	}
}

// TestEveryAlertFiresAlone takes minutes: make alerts runs it.
func TestEveryAlertFiresAlone(t *testing.T) {
	redistest.OnlyIfAsked(t)
	scenes := slices.Concat(scenesOfTheEngine, scenesOfIngest, scenesOfCleanup, scenesOfAvailability)
	var names, tested []string
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			names = append(names, r.Alert)
		}
	}
	for _, s := range scenes {
		tested = append(tested, s.alert)
	}
	require.ElementsMatch(t, names, tested, "each alert has one scene")

	var mu sync.Mutex
	lines := make(map[string]string)
	t.Run("scenes", func(t *testing.T) {
		for _, s := range scenes {
			t.Run(s.alert, func(t *testing.T) {
				t.Parallel()
				took := s.play(t)
				mu.Lock()
				defer mu.Unlock()
				lines[s.alert] = fmt.Sprintf("| %s | %s | %.0f min |\n", s.alert, s.fault,
					(took * ratio).Minutes())
				t.Logf("fires alone, %v after the fault: %s", took.Round(time.Second), s.fault)
			})
		}
	})
	var report strings.Builder
	report.WriteString("| alert | fault | fires alone after |\n|---|---|---|\n")
	for _, name := range names {
		report.WriteString(lines[name])
	}
	t.Logf("all alerts:\n%s", report.String())
}

// play returns how long the alert took, from the fault on.
func (s scene) play(t *testing.T) time.Duration {
	program := "ingest"
	for name, p := range map[string]string{"Cleanup": "cleanup", "Availability": "availability"} {
		if strings.HasPrefix(s.alert, name) {
			program = p
		}
	}
	r := newRig(t)
	s.fleet(r)
	r.watch(faster(t, program))
	begun := time.Now()
	if s.strike != nil {
		r.await("all replicas are scraped, one leads, and nothing is about to fire", func() bool {
			require.Empty(t, r.alerts(true))
			return r.is(1, "up") && r.is(1, "sum(janitor_leader)") && r.healthy(program)
		})
		begun = time.Now()
		s.strike(r)
	}
	for {
		switch firing := r.alerts(true); {
		case slices.Equal(firing, []string{s.alert}):
			return time.Since(begun)
		case len(firing) > 0:
			require.Equal(t, []string{s.alert}, firing, "%v after the fault", time.Since(begun))
		}
		require.Less(t, time.Since(begun), patience, "it has not fired; pending: %v", r.alerts(false))
		require.True(t, wait.For(t.Context(), poll))
	}
}

// worked is true when a program has done, since its start, what it is for.
var worked = map[string]string{
	"ingest": `sum(janitor_passes_total{sweep="registry", outcome="done"}) > 0
		and sum(teltonika_registry_held) >= 20`,
	"cleanup": `sum(cleanup_cycles_total) > 0`,
	"availability": `sum(janitor_passes_total{sweep="availability_offline", outcome="done"}) > 0
		and max(availability_mitras_online) >= 60`,
}

// healthy tells whether a fleet that was started just now is what it will be. The hold of a first
// start is over then, but still within the window of RollcallHeld.
func (r *rig) healthy(program string) bool {
	done, err := r.query(worked[program])
	require.NoError(r, err)
	pending := slices.DeleteFunc(r.alerts(false), func(name string) bool { return name == "RollcallHeld" })
	return len(done) > 0 && len(pending) == 0
}

func (r *rig) must(args ...any) {
	r.Helper()
	require.NoError(r, r.rdb.Do(r.Context(), args...).Err())
}

// deny leaves replicas the keys of these patterns alone.
func (r *rig) deny(patterns ...string) {
	r.Helper()
	args := []any{"ACL", "SETUSER", "default", "resetkeys"}
	for _, p := range patterns {
		args = append(args, p)
	}
	r.must(args...)
}

// again does something again and again until the test ends.
func (r *rig) again(pause time.Duration, do func(ctx context.Context)) {
	r.background(func(ctx context.Context) {
		for wait.For(ctx, pause) {
			do(ctx)
		}
	})
}
