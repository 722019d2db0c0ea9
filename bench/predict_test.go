package bench

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/scale"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// predict compares what internal/scale reckons with a real, small Cluster of real replicas, by
// prices of the same run.
func predict(r *rig) {
	r.section("The simulation beside a real Cluster")
	p := r.priceList()
	m := &modelled{rig: r.onCluster(), prices: p, f: scale.Fleet{
		Replicas: min(20, r.replicas), Partitions: 1, Masters: 3,
		Interval: seenTiming.Interval, Scan: time.Second, RTT: 50 * time.Microsecond,
	}}
	m.claims = min(1000, r.claims)
	m.f.Devices = m.f.Replicas * m.claims
	m.f = m.f.WithDefaults(p)
	r.say("%d replicas in this process hold %s devices each, on three masters, in one partition. They beat every %s, and a full scan comes every %s. "+
		"CPU is that of all three, less what they take while idle, median of %d rounds; so is the ratio.",
		m.f.Replicas, many(m.claims), m.f.Interval, m.f.Scan, r.rounds)
	var rows [][]string
	for _, what := range []struct {
		name string
		run  func() (reckoned, measured cost)
	}{
		{"storm: all register at once", m.storm}, {"nothing happens", m.quiet},
		{"500 devices a second move", func() (cost, cost) { return m.moves(500) }},
		{"devices move, one after the other at 8", func() (cost, cost) { return m.moves(0) }},
		{"2000 look-ups a second", func() (cost, cost) { return m.lookUps(2000) }},
		{"look-ups, one after the other at 8", func() (cost, cost) { return m.lookUps(0) }},
		{"3 replicas die", m.deaths}, {"FLUSHALL", m.flush},
	} {
		var ratios, reckoned, measured, took, wall []float64
		for range r.rounds {
			a, b := what.run()
			reckoned, measured = append(reckoned, a.cpu.Seconds()), append(measured, b.cpu.Seconds())
			took, wall = append(took, a.wall.Seconds()), append(wall, b.wall.Seconds())
			ratios = append(ratios, a.cpu.Seconds()/max(1e-6, b.cpu.Seconds()))
		}
		span := func(s []float64) string { return brief(time.Duration(median(s) * float64(time.Second))) }
		rows = append(rows, []string{what.name, span(reckoned), span(measured), fmt.Sprintf("%.2f", median(ratios)), span(took), span(wall)})
		r.promise("reckoned CPU of "+what.name+", × measured, or the inverse", "%.2f", max(median(ratios), 1/median(ratios)), 1.5)
	}
	r.table([]string{"", "CPU, reckoned", "CPU, measured", "ratio", "took, reckoned", "took, measured"}, rows)
	stopAll(m.fleet)
}

// modelled is a real fleet, and what is reckoned of it.
type modelled struct {
	*rig
	prices scale.Prices
	f      scale.Fleet
	claims int
	fleet  []*replica
	held   []*registry.Claim // by device
	at     []int             // the replica that each is at
	dead   int               // owners that have died so far
}

// reckon plays a scenario, and what goes on all the time for as long as the real one took longer.
func (m *modelled) reckon(f scale.Fleet, sc scale.Scenario, real cost) (reckoned, measured cost) {
	if sc == (scale.Scenario{}) {
		sc.For = real.wall
	}
	got := scale.Simulate(m.prices, f, sc)
	more := max(0, real.wall-got.Took)
	return cost{cpu: got.Total() + time.Duration(scale.Load(m.prices, f)*float64(more)), wall: got.Took}, real
}

// storm starts the fleet anew, and has all devices register.
func (m *modelled) storm() (reckoned, measured cost) {
	stopAll(m.fleet)
	m.clear()
	m.warmFor(m.f.Interval)
	m.fleet = make([]*replica, m.f.Replicas)
	m.held, m.at = make([]*registry.Claim, m.f.Devices), make([]int, m.f.Devices)
	for i := range m.fleet {
		m.fleet[i] = m.start(madeUp, func(rc *registry.Config, jc *janitor.Config) {
			rc.HeartbeatInterval, rc.HeartbeatTTL = m.f.Interval, m.f.TTL
			jc.Interval, jc.RedisShare = m.f.Scan, m.f.Share
		}, true)
	}
	wait.For(m.t.Context(), m.f.Interval)
	real := m.measure(m.f.Devices, func() {
		for i := range m.held {
			m.at[i] = i / m.claims
			m.held[i] = m.fleet[m.at[i]].reg.Register(imei(i))
		}
		for _, c := range m.held {
			require.NoError(m.t, c.Wait(m.t.Context()))
		}
	})
	wait.For(m.t.Context(), m.f.Interval)
	return m.reckon(m.f, scale.Scenario{Storm: true}, real)
}

// watched is how long what goes on evenly is watched: some beats of everybody.
func (m *modelled) watched() time.Duration { return min(10*time.Second, m.beat) }

func (m *modelled) quiet() (reckoned, measured cost) {
	real := m.measure(1, func() { wait.For(m.t.Context(), m.watched()) })
	return m.reckon(m.f, scale.Scenario{}, real)
}

// going has something done to devices, so many times a second; 0: by eight at a time, as fast as they
// can. It returns how often it was done a second.
func (m *modelled) going(rate float64, do func(device int)) (c cost, each float64) {
	var done atomic.Int64
	c = m.measure(1, func() {
		begun := time.Now()
		if rate > 0 {
			for time.Since(begun) < m.watched() {
				for ; float64(done.Load()) < rate*time.Since(begun).Seconds(); done.Add(1) {
					do(rand.IntN(len(m.held)))
				}
				wait.For(m.t.Context(), 2*time.Millisecond)
			}
			return
		}
		const workers = 8
		var wg sync.WaitGroup
		for k := range workers {
			wg.Go(func() {
				for i := k; time.Since(begun) < m.watched(); i = (i + workers) % len(m.held) {
					do(i)
					done.Add(1)
				}
			})
		}
		wg.Wait()
	})
	return c, float64(done.Load()) / c.wall.Seconds()
}

// moves has devices connect to other replicas.
func (m *modelled) moves(rate float64) (reckoned, measured cost) {
	real, each := m.going(rate, func(i int) {
		m.at[i] = (m.at[i] + 1 + rand.IntN(m.f.Replicas-1)) % m.f.Replicas
		before := m.held[i]
		m.held[i] = m.fleet[m.at[i]].reg.Register(imei(i))
		if rate == 0 {
			if err := m.held[i].Wait(m.t.Context()); err != nil {
				m.t.Error(err)
			}
		}
		before.Release()
	})
	f := m.f
	f.Registrations = each
	return m.reckon(f, scale.Scenario{}, real)
}

func (m *modelled) lookUps(rate float64) (reckoned, measured cost) {
	real, each := m.going(rate, func(i int) {
		if _, err := m.fleet[0].reg.Lookup(m.t.Context(), imei(i)); err != nil {
			m.t.Error(err)
		}
	})
	f := m.f
	f.Lookups = each
	return m.reckon(f, scale.Scenario{}, real)
}

// deaths lets made-up owners die that hold as many devices as the others.
func (m *modelled) deaths() (reckoned, measured cost) {
	const deaths = 3
	var ids []string
	for range deaths {
		id := owner("dead", m.dead)
		ids, m.dead = append(ids, id), m.dead+1
		require.NoError(m.t, m.rdb.Set(m.t.Context(), m.keys.Heartbeat(id), "0/0", time.Hour).Err())
		m.fill(m.f.Devices+m.dead*m.claims, m.claims, true, id)
	}
	require.NoError(m.t, m.rdb.SAdd(m.t.Context(), m.keys.Roster(), anys(ids)...).Err())
	wait.For(m.t.Context(), 7*m.f.Interval) // the leader has seen them alive, and no hold is young
	real := m.measure(deaths*m.claims, func() {
		m.die(ids...)
		m.until(func() bool {
			wait.For(m.t.Context(), 10*time.Millisecond)
			return m.entries() == m.f.Devices
		})
	})
	return m.reckon(m.f, scale.Scenario{Deaths: deaths}, real)
}

// flush empties all masters.
func (m *modelled) flush() (reckoned, measured cost) {
	real := m.measure(m.f.Devices, func() {
		for _, n := range m.nodes {
			require.NoError(m.t, n.FlushAll(m.t.Context()).Err())
		}
		m.until(func() bool {
			wait.For(m.t.Context(), 10*time.Millisecond)
			return m.entries() == m.f.Devices
		})
	})
	wait.For(m.t.Context(), m.f.TTL+3*time.Second) // the hold is over
	return m.reckon(m.f, scale.Scenario{Flush: true}, real)
}

func anys(list []string) []any {
	all := make([]any, len(list))
	for i, s := range list {
		all[i] = s
	}
	return all
}
