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

	"github.com/rollcall-redis/rollcall/internal/guard"
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

func (r *rig) leads(layout guard.Layout, c janitor.Config) *leader {
	r.t.Helper()
	o := r.world.Options
	data, control := redis.NewClient(o), redis.NewClient(controlOptions(o))
	r.t.Cleanup(func() { _, _ = data.Close(), control.Close() })
	reg, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: "worker-1", Layout: layout, Logger: r.log,
	})
	r.NoError(err)
	c.Client, c.Control, c.Registry, c.Sweeps, c.Logger, c.RedisShare = data, control, reg, r.Sweeps(), r.log, 1
	jan, err := janitor.New(c)
	r.NoError(err)
	l := &leader{rig: r, jan: jan, layout: layout}
	timing := guard.Timing{Interval: registry.DefaultHeartbeatInterval, TTL: registry.DefaultHeartbeatTTL}
	r.did(guard.New(data, data, layout, timing, "nobody").Tick(r.ctx))
	l.listened(10 * time.Hour)
	ctx, cancel := context.WithCancel(context.Background())
	replica := pool.New().WithContext(ctx)
	replica.Go(reg.Run)
	replica.Go(jan.Run)
	var stopped atomic.Bool
	l.stop = func() {
		if stopped.CompareAndSwap(false, true) {
			cancel()
			r.NoError(replica.Wait())
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
	l.redis("HSET", l.layout.Witness(), "since", at)
}

// sweep asks for a pass of one sweep, or of all if it is "", and returns the reports by name. All
// run at once: what one finds depends on what another has healed already.
func (l *leader) sweep(only string) map[string]janitor.Report {
	l.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		reports, err := l.jan.Sweep(l.ctx, janitor.Request{Sweep: only})
		if not := new(janitor.NotLeaderError); errors.As(err, &not) {
			continue
		}
		l.NoError(err)
		all := map[string]janitor.Report{}
		for _, r := range reports {
			all[r.Sweep] = r
		}
		return all
	}
	return nil
}

func (l *leader) pass(sweep string) janitor.Report { return l.sweep(sweep)[sweep] }

// sweeps requires an outcome of a search for the silent.
func (l *leader) sweeps(outcome janitor.Outcome, why ...any) {
	l.t.Helper()
	l.Equal(outcome, l.offline().Outcome, why...)
}

// is requires that the source has a mitra online, or offline.
func (l *leader) is(id string, online bool, why ...any) {
	l.t.Helper()
	l.Equal(online, l.source.state(id).Online, why...)
}

func (l *leader) offline() janitor.Report { return l.pass("availability_offline") }

// swept runs a test with a leader on each kind of server. Its mitras are seeded after its first
// passes.
func swept(t *testing.T, states []State, test func(l *leader)) {
	t.Helper()
	made := time.Now()
	onEmpty(t, newFake(), func(r *rig) {
		l := r.leads(r.c.Layout, janitor.Config{})
		for _, s := range states {
			s.Seen = s.Seen.Add(time.Since(made)) // the test may have waited for its turn
			r.source.put(s)
		}
		r.seeded()
		test(l)
	}, slowly)
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
			swept(t, states, func(l *leader) {
				if c.arrange != nil {
					c.arrange(l)
				}
				l.Equal(c.outcome, l.offline().Outcome)
				l.Empty(l.source.flips)
				l.is(states[0].ID, true)
				if c.why == "" {
					l.NotEmpty(l.Health().Offline)
				} else {
					l.Equal(c.why, l.Health().Offline)
				}
			})
		})
	}
}

// failing makes one operation of the source fail.
func (r *rig) failing(op string) {
	r.source.at(op, func() error { return errors.New("no answer") })
}

func TestWhatWasNotedBeforeTheClockWentBackOrMakesNoSenseHoldsNoLongerThanItCan(t *testing.T) {
	ahead := fmt.Sprint(time.Now().Add(1000 * time.Hour).UnixMilli())
	for field, reason := range map[string]string{heldUntil: heldMassFailure, notRequired: heldListening} {
		for _, value := range []string{ahead, "9223372036854775808"} {
			t.Run(field+" "+value, func(t *testing.T) {
				swept(t, []State{silent("a")}, func(l *leader) {
					noted := func() time.Time {
						ms, err := l.client.HGet(l.ctx, l.keys.noted(), field).Int64()
						l.NoError(err)
						return time.UnixMilli(ms)
					}
					l.redis("HSET", l.keys.noted(), field, value)
					report := l.offline()
					l.Equal(janitor.Held, report.Outcome)
					l.Equal(reason, report.Reason)
					l.Less(time.Until(noted()), time.Hour)
					was := noted()
					l.offline()
					l.Equal(was, noted(), "it does not begin again")
				})
			})
		}
	}
}

func TestASweepThatDiedIsBroughtByTheFeedOrMadeByTheNextOnce(t *testing.T) {
	for at, applied := range map[string]bool{"AutoOffline": false, "AutoOffline committed": true} {
		t.Run("at "+at, func(t *testing.T) {
			swept(t, []State{silent("a"), silent("b"), online("c")}, func(l *leader) {
				l.failing(at)
				l.source.busy = []string{"b"} // whom the source leaves is looked at by the next pass
				l.sweeps(janitor.Failed)
				l.Equal(!applied, l.source.state("a").Online)
				l.mended()
				if applied {
					l.did(l.reconciliation(newer, directly).deliver(l.ctx, newer, []State{l.source.state("a")}))
				}
				l.sweeps(janitor.Done)
				l.is("b", true)
				l.source.busy = nil
				l.sweeps(janitor.Done)
				l.Len(l.source.flips, 2, "nobody twice")
				l.is("c", true)
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
	swept(t, states, func(l *leader) {
		back := 0
		l.source.at("AutoOffline", func() error {
			if back > settleTries {
				return nil
			}
			back++
			_, err := l.Heartbeat(context.Background(), fmt.Sprintf("silent-%03d", back))
			return err
		})
		l.sweeps(janitor.Failed, "one more at each try")
		l.Empty(l.source.flips)
		report := l.offline()
		l.Equal(janitor.Done, report.Outcome)
		l.Len(l.source.flips, 550-settleTries-1)
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
			swept(t, []State{silent("a")}, func(l *leader) {
				l.source.settings.StaleAfter = 20 * time.Minute
				l.source.held.set(func() { c.happens(l) }) // before the commit
				report := l.offline()
				l.Equal(janitor.Held, report.Outcome)
				l.Equal(c.reason, report.Reason)
				l.Equal(c.reason, l.Health().Offline)
				l.Empty(l.source.flips)
			})
		})
	}
}

func TestADryRunSetsNobodyOffline(t *testing.T) {
	onEmpty(t, newFake(), func(r *rig) {
		l := r.leads(r.c.Layout, janitor.Config{DryRun: true})
		r.source.put(silent("a"))
		r.seeded()
		report := l.offline()
		r.Equal(1, report.Condemned)
		r.Zero(report.Evicted)
		r.Empty(r.source.flips)
		r.Zero(r.client.Exists(r.ctx, r.keys.noted()).Val())
	}, slowly)
}

// A mitra sends its heartbeats to another fleet, whose next copy of them is to come.
func TestWhoMayHaveSentAHeartbeatToAnotherFleetStaysOnline(t *testing.T) {
	swept(t, []State{silent("a")}, func(l *leader) {
		a := l.source.state("a")
		a.Seen = time.Now().Add(-l.source.settings.StaleAfter - time.Minute)
		l.source.put(a)
		l.did(l.source.Announce(l.ctx, "another", time.Minute))
		l.sweeps(janitor.Done)
		l.is("a", true)
		l.Len(l.source.fleets, 2, "this one is announced, too")
		l.source.mu.Lock()
		delete(l.source.fleets, "another")
		l.source.mu.Unlock()
		l.sweeps(janitor.Done)
		l.is("a", false)
	})
}

func TestAJanitorWithAnotherPrefixIsRefusedByName(t *testing.T) {
	onEmpty(t, newFake(), func(r *rig) {
		other := guard.Layout{Prefix: r.keys.Prefix + "other:"}
		r.leads(other, janitor.Config{}).fails("both need the same Layout", other.Prefix)
		r.Contains(r.Health().Offline, "both need the same Layout")
	}, slowly)
}

// fails requires that each sweep fails, and says these words.
func (l *leader) fails(words ...string) {
	l.t.Helper()
	reports := l.sweep("")
	for _, sweep := range l.Sweeps() {
		name, report := sweep.Name(), reports[sweep.Name()]
		l.Equal(janitor.Failed, report.Outcome, name)
		for _, word := range words {
			l.Contains(report.Error, word, name)
		}
	}
}
