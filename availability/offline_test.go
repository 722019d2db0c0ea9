package availability

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	never = 1000 * time.Hour
	// waveLeast is how many have to be online for a mass failure.
	waveLeast = 20
)

// slowly keeps the sweeps from running by themselves.
func slowly(c *Config) {
	c.ReconcileInterval, c.OfflineInterval, c.HeartbeatInterval = never, never, never
}

// leader is a janitor that leads with the mirror's sweeps, on keys of its own lease and log.
type leader struct {
	*rig
	jan    *janitor.Janitor
	layout guard.Layout
	stop   func()
}

func (r *rig) leads(o *redis.Options, layout guard.Layout, dry bool) *leader {
	r.t.Helper()
	return r.leadsWith(o, layout, guard.Timing{
		Interval: registry.DefaultHeartbeatInterval, TTL: registry.DefaultHeartbeatTTL,
	}, janitor.Config{DryRun: dry})
}

func (r *rig) leadsWith(o *redis.Options, layout guard.Layout, timing guard.Timing, c janitor.Config) *leader {
	r.t.Helper()
	data, control := redis.NewClient(o), redis.NewClient(controlOptions(o))
	r.t.Cleanup(func() { _, _ = data.Close(), control.Close() })
	reg, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: "worker-1", Layout: layout, Logger: r.log,
		HeartbeatInterval: timing.Interval, HeartbeatTTL: timing.TTL,
	})
	require.NoError(r.t, err)
	c.Client, c.Control, c.Registry, c.Sweeps, c.Logger, c.RedisShare = data, control, reg, r.Sweeps(), r.log, 1
	jan, err := janitor.New(c)
	require.NoError(r.t, err)
	l := &leader{rig: r, jan: jan, layout: layout}
	_, err = guard.New(data, data, layout, timing, "nobody").Tick(r.t.Context())
	require.NoError(r.t, err)
	l.listened(10 * time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	replica := pool.New().WithContext(ctx)
	replica.Go(reg.Run)
	replica.Go(jan.Run)
	var stopped atomic.Bool
	l.stop = func() {
		if stopped.CompareAndSwap(false, true) {
			cancel()
			require.NoError(r.t, replica.Wait())
		}
	}
	r.t.Cleanup(l.stop)
	l.sweep("") // the first passes of the term are over before there is anything
	return l
}

// listened makes the witness believe that it has listened for so long.
func (l *leader) listened(d time.Duration) {
	l.t.Helper()
	at := time.Now().Add(-d).UnixMilli()
	require.NoError(l.t, l.client.HSet(l.t.Context(), l.layout.Witness(), "since", at).Err())
}

// sweep asks for a pass of one sweep, or of all if it is "", and returns the reports by name. All
// run at once: what one finds depends on what another has healed already.
func (l *leader) sweep(only string) map[string]janitor.Report {
	l.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		reports, err := l.jan.Sweep(l.t.Context(), janitor.Request{Sweep: only})
		if not := new(janitor.NotLeaderError); errors.As(err, &not) {
			continue
		}
		require.NoError(l.t, err)
		all := map[string]janitor.Report{}
		for _, r := range reports {
			all[r.Sweep] = r
		}
		return all
	}
	return nil
}

func (l *leader) pass(sweep string) janitor.Report { return l.sweep(sweep)[sweep] }

func (l *leader) offline() janitor.Report { return l.pass("availability_offline") }

// swept runs a test with a leader on each kind of server. Its mitras are seeded after its first
// passes.
func swept(t *testing.T, states []State, test func(t *testing.T, l *leader)) {
	t.Helper()
	made := time.Now()
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(), slowly)
		l := r.leads(w.Options, r.c.Layout, false)
		for _, s := range states {
			s.Seen = s.Seen.Add(time.Since(made)) // the test may have waited for its turn
			r.source.put(s)
		}
		r.seeded()
		test(t, l)
	})
}

// silent is a state of somebody who is online and has not been heard of for an hour.
func silent(id string) State {
	s := online(id)
	s.Seen = time.Now().Add(-time.Hour)
	return s
}

func TestNobodyGoesOffline(t *testing.T) {
	many := make([]State, 0, 2*waveLeast)
	for i := range 2 * waveLeast {
		many = append(many, silent(fmt.Sprint("m", i)))
	}
	for name, c := range map[string]struct {
		states  []State
		arrange func(l *leader)
		outcome janitor.Outcome
		why     string
	}{
		"where pings are not required": {
			arrange: func(l *leader) { l.source.settings.RequirePing = false }, outcome: janitor.Done, why: offSettings,
		},
		"by settings by which everybody is silent": { // whoever pings on time
			arrange: func(l *leader) { l.source.settings.StaleAfter = l.source.settings.PingInterval }, outcome: janitor.Held,
			why: heldSettings,
		},
		"before the witness has listened for the grace period": {
			arrange: func(l *leader) { l.listened(time.Second) }, outcome: janitor.Held,
		},
		"before the witness has listened for as long as a mitra may be silent": {
			arrange: func(l *leader) {
				l.source.settings.StaleAfter = 20 * time.Minute
				l.listened(10 * time.Minute)
			}, outcome: janitor.Held, why: heldListening,
		},
		"while the mirror is not whole": {
			arrange: func(l *leader) { l.client.Del(context.Background(), l.keys.seeded()) }, outcome: janitor.Held, why: heldUnseeded,
		},
		"when most fell silent at once": {states: many, outcome: janitor.Held, why: heldMassFailure},
		"when sweeping is paused": {
			arrange: func(l *leader) { l.client.Set(context.Background(), l.layout.Paused(), "1", 0) }, outcome: janitor.Held, why: "paused",
		},
		"when the settings cannot be read": {
			arrange: func(l *leader) { l.failing("Settings") }, outcome: janitor.Failed, why: "availability: settings: no answer",
		},
		"when the source fails before the commit": {
			arrange: func(l *leader) { l.failing("AutoOffline") }, outcome: janitor.Failed,
			why: "availability: set the silent offline: no answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			states := c.states
			if states == nil {
				states = []State{silent("a")}
			}
			swept(t, states, func(t *testing.T, l *leader) {
				if c.arrange != nil {
					c.arrange(l)
				}
				require.Equal(t, c.outcome, l.offline().Outcome)
				require.Empty(t, l.source.flips)
				require.True(t, l.source.state(states[0].ID).Online)
				if c.why == "" {
					require.NotEmpty(t, l.Health().Offline)
				} else {
					require.Equal(t, c.why, l.Health().Offline)
				}
			})
		})
	}
}

// failing makes one operation of the source fail.
func (r *rig) failing(op string) {
	r.source.fault.set(func(asked string) error {
		if asked == op {
			return errors.New("no answer")
		}
		return nil
	})
}

func TestWhatWasNotedBeforeTheClockWentBackOrMakesNoSenseHoldsNoLongerThanItCan(t *testing.T) {
	ahead := fmt.Sprint(time.Now().Add(1000 * time.Hour).UnixMilli())
	for field, reason := range map[string]string{heldUntil: heldMassFailure, notRequired: heldListening} {
		for _, value := range []string{ahead, "9223372036854775808"} {
			t.Run(field+" "+value, func(t *testing.T) {
				swept(t, []State{silent("a")}, func(t *testing.T, l *leader) {
					noted := func() time.Time {
						ms, err := l.client.HGet(t.Context(), l.keys.noted(), field).Int64()
						require.NoError(t, err)
						return time.UnixMilli(ms)
					}
					require.NoError(t, l.client.HSet(t.Context(), l.keys.noted(), field, value).Err())
					report := l.offline()
					require.Equal(t, janitor.Held, report.Outcome)
					require.Equal(t, reason, report.Reason)
					require.Less(t, time.Until(noted()), time.Hour)
					was := noted()
					l.offline()
					require.Equal(t, was, noted(), "it does not begin again")
				})
			})
		}
	}
}

func TestASweepThatDiedIsBroughtByTheFeedOrMadeByTheNextOnce(t *testing.T) {
	for at, applied := range map[string]bool{"AutoOffline": false, "AutoOffline committed": true} {
		t.Run("at "+at, func(t *testing.T) {
			swept(t, []State{silent("a"), silent("b"), online("c")}, func(t *testing.T, l *leader) {
				l.failing(at)
				l.source.busy = []string{"b"} // whom the source leaves is looked at by the next pass
				require.Equal(t, janitor.Failed, l.offline().Outcome)
				require.Equal(t, !applied, l.source.state("a").Online)
				l.source.fault.set(func(string) error { return nil })
				if applied {
					_, err := l.reconciliation(newer, directly).deliver(t.Context(), newer, []State{l.source.state("a")})
					require.NoError(t, err)
				}
				require.Equal(t, janitor.Done, l.offline().Outcome)
				require.True(t, l.source.state("b").Online)
				l.source.busy = nil
				require.Equal(t, janitor.Done, l.offline().Outcome)
				require.Len(t, l.source.flips, 2, "nobody twice")
				require.True(t, l.source.state("c").Online)
				l.same()
			})
		})
	}
}

// The first hundred of a transaction of their own would be offline already.
func TestOneWhoComesBackBeforeTheCommitKeepsAllOfManyOnline(t *testing.T) {
	states := []State{}
	for i := range 550 {
		states = append(states, silent(fmt.Sprintf("silent-%03d", i)))
	}
	for i := range 600 {
		states = append(states, online(fmt.Sprintf("fresh-%03d", i)))
	}
	swept(t, states, func(t *testing.T, l *leader) {
		back := 0
		l.source.fault.set(func(op string) error {
			if op != "AutoOffline" || back > settleTries {
				return nil
			}
			back++
			_, err := l.Heartbeat(context.Background(), fmt.Sprintf("silent-%03d", back))
			return err
		})
		require.Equal(t, janitor.Failed, l.offline().Outcome, "one more at each try")
		require.Empty(t, l.source.flips)
		report := l.offline()
		require.Equal(t, janitor.Done, report.Outcome)
		require.Len(t, l.source.flips, 550-settleTries-1)
	})
}

func TestALookThatHasAgedKeepsEverybody(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(l *leader)
		reason  string
	}{
		"the witness held":  {func(l *leader) { l.listened(10 * time.Minute) }, heldListening}, // longer than the grace period
		"Redis was emptied": {func(l *leader) { l.client.Del(context.Background(), l.keys.seeded()) }, heldUnseeded},
	} {
		t.Run(name, func(t *testing.T) {
			swept(t, []State{silent("a")}, func(t *testing.T, l *leader) {
				l.source.settings.StaleAfter = 20 * time.Minute
				l.source.held.set(func() { c.happens(l) }) // before the commit
				report := l.offline()
				require.Equal(t, janitor.Held, report.Outcome)
				require.Equal(t, c.reason, report.Reason)
				require.Equal(t, c.reason, l.Health().Offline)
				require.Empty(t, l.source.flips)
			})
		})
	}
}

func TestADryRunSetsNobodyOffline(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		r := newRig(t, w, newFake(), slowly)
		l := r.leads(w.Options, r.c.Layout, true)
		r.source.put(silent("a"))
		r.seeded()
		report := l.offline()
		require.Equal(t, 1, report.Condemned)
		require.Zero(t, report.Evicted)
		require.Empty(t, r.source.flips)
		require.Zero(t, r.client.Exists(t.Context(), r.keys.noted()).Val())
	})
}

// A mitra sends its heartbeats to another fleet, whose next copy of them is to come.
func TestWhoMayHaveSentAHeartbeatToAnotherFleetStaysOnline(t *testing.T) {
	swept(t, []State{silent("a")}, func(t *testing.T, l *leader) {
		a := l.source.state("a")
		a.Seen = time.Now().Add(-l.source.settings.StaleAfter - time.Minute)
		l.source.put(a)
		_, err := l.source.Announce(t.Context(), "another", time.Minute)
		require.NoError(t, err)
		require.Equal(t, janitor.Done, l.offline().Outcome)
		require.True(t, l.source.state("a").Online)
		require.Len(t, l.source.fleets, 2, "this one is announced, too")
		l.source.mu.Lock()
		delete(l.source.fleets, "another")
		l.source.mu.Unlock()
		require.Equal(t, janitor.Done, l.offline().Outcome)
		require.False(t, l.source.state("a").Online)
	})
}
