package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/bench/internal/scale"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/partition"
	"github.com/rollcall-redis/rollcall/registry"
)

// predict compares the forecast of bench/internal/scale with a small Cluster of real replicas, by
// prices of the same run.
func predict(r *rig) {
	r.section("The simulation beside a real Cluster")
	p := r.priceList()
	cluster := r.onCluster()
	numbers := []int{1, 16}
	if *sizeFlag == smoke {
		numbers = []int{4}
	}
	for _, partitions := range numbers {
		m := &modelled{rig: cluster, prices: p, f: scale.Fleet{
			Replicas: min(20, r.replicas), Partitions: partitions, Masters: 3,
			Interval: seenTiming.Interval, LeaseTTL: 3 * time.Second, Scan: time.Second, RTT: 50 * time.Microsecond,
		}}
		m.claims = min(1000, r.claims)
		m.f.Devices = m.f.Replicas * m.claims
		m.f = m.f.WithDefaults(p)
		m.compare()
	}
}

// modelled is a real fleet, and what is reckoned of it.
type modelled struct {
	*rig
	prices scale.Prices
	f      scale.Fleet
	claims int
	fleet  []*partition.Registry
	stop   func()
	held   []*registry.Claim // by device
	at     []int             // the replica that each is at
	dead   int               // owners that have died so far
}

// compare writes the table of one number of partitions.
func (m *modelled) compare() {
	rounds := min(3, m.rounds)
	m.say("### Partitions: %d", m.f.Partitions)
	m.say("%d replicas in this process hold %s devices each, on three masters. They beat every %s, and a full scan comes every %s. "+
		"CPU is that of all three, less what they take while idle. Medians of %d rounds.",
		m.f.Replicas, many(m.claims), m.f.Interval, m.f.Scan, rounds)
	const nothing = "nothing happens"
	var rows [][]string
	var quiet cost
	for _, what := range []struct {
		name string
		run  func() (reckoned, measured cost)
	}{
		{"storm: all register at once", m.storm}, {nothing, m.quiet},
		{"500 devices a second move", func() (cost, cost) { return m.moves(500) }},
		{"devices move, eight at a time", func() (cost, cost) { return m.moves(0) }},
		{"look-ups, eight at a time", m.lookUps},
		{fmt.Sprintf("%d replicas die", m.dying()), m.deaths}, {"FLUSHALL", m.flush},
	} {
		var ratios, reckoned, measured, took, wall []float64
		for range rounds {
			a, b := what.run()
			reckoned, measured = append(reckoned, a.cpu.Seconds()), append(measured, b.cpu.Seconds())
			took, wall = append(took, a.wall.Seconds()), append(wall, b.wall.Seconds())
			if what.name == nothing {
				quiet = b
			}
			ratios = append(ratios, a.cpu.Seconds()/max(1e-6, b.cpu.Seconds()))
		}
		span := func(s []float64) string { return brief(time.Duration(median(s) * float64(time.Second))) }
		rows = append(rows, []string{what.name, span(reckoned), span(measured), fmt.Sprintf("%.2f", median(ratios)), span(took), span(wall)})
	}
	m.table([]string{"", "CPU, reckoned", "CPU, measured", "ratio", "took, reckoned", "took, measured"}, rows)
	m.say("Where the time of all three went in %s in which nothing happened: %s.", m.watched(), quiet.dearest())
	m.stop()
}

// each has something done on the keys of every partition.
func (m *modelled) each(do func(part *rig)) {
	for k := range m.f.Partitions {
		part := *m.rig
		part.keys = m.keys.Partition(k, m.f.Partitions)
		do(&part)
	}
}

// left counts the registry in all partitions.
func (m *modelled) left() (n int) {
	m.each(func(part *rig) { n += part.entries() })
	return n
}

// launch starts the fleet, and returns when every replica has beaten in every partition.
func (m *modelled) launch() {
	m.fleet = nil
	ctx, cancel := context.WithCancel(context.Background())
	replicas := pool.New().WithErrors()
	var clients []redis.UniversalClient
	for range m.f.Replicas {
		client, control := m.connect()
		clients = append(clients, client, control)
		quiet := slog.New(slog.DiscardHandler)
		reg, err := partition.NewRegistry(registry.Config{
			Client: client, Control: control, Layout: m.keys, Drain: time.Millisecond, Logger: quiet,
			HeartbeatInterval: m.f.Interval, HeartbeatTTL: m.f.TTL,
		}, m.f.Partitions)
		require.NoError(m.t, err)
		jan, err := partition.NewJanitor(janitor.Config{
			Client: client, Control: control, Interval: m.f.Scan, LeaseTTL: m.f.LeaseTTL, RedisShare: m.f.Share, Logger: quiet,
		}, reg)
		require.NoError(m.t, err)
		replicas.Go(func() error { return reg.Run(ctx) })
		replicas.Go(func() error { return jan.Run(ctx) })
		<-reg.Started()
		m.fleet = append(m.fleet, reg)
	}
	m.stop = sync.OnceFunc(func() {
		cancel()
		err := replicas.Wait()
		for _, c := range clients {
			err = errors.Join(err, c.Close())
		}
		if err != nil {
			m.t.Error(err)
		}
	})
	m.t.Cleanup(m.stop)
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
	if m.stop != nil {
		m.stop()
	}
	m.clear()
	m.each(func(part *rig) { part.warmFor(m.f.Interval) })
	m.launch()
	m.held, m.at = make([]*registry.Claim, m.f.Devices), make([]int, m.f.Devices)
	m.rest(3 * m.f.LeaseTTL) // it is settled who contends for what
	real := m.measure(m.f.Devices, func() {
		for i := range m.held {
			m.at[i] = i / m.claims
			m.held[i] = m.fleet[m.at[i]].Register(imei(i))
		}
		for _, c := range m.held {
			require.NoError(m.t, c.Wait(m.t.Context()))
		}
	})
	m.rest(m.f.Interval)
	return m.reckon(m.f, scale.Scenario{Storm: true}, real)
}

// watched is how long what goes on evenly is watched: some beats of everybody.
func (m *modelled) watched() time.Duration {
	if *sizeFlag == smoke {
		return 100 * time.Millisecond
	}
	return min(5*time.Second, m.beat)
}

func (m *modelled) quiet() (reckoned, measured cost) {
	real := m.measure(1, func() { wait.For(m.t.Context(), m.watched()) })
	return m.reckon(m.f, scale.Scenario{}, real)
}

// going has something done to devices, so many times a second; 0: by eight at a time, as fast as
// they can. It returns how often it was done a second.
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
		m.held[i] = m.fleet[m.at[i]].Register(imei(i))
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

func (m *modelled) lookUps() (reckoned, measured cost) {
	real, each := m.going(0, func(i int) {
		if _, err := m.fleet[0].Lookup(m.t.Context(), imei(i)); err != nil {
			m.t.Error(err)
		}
	})
	f := m.f
	f.Lookups = each
	return m.reckon(f, scale.Scenario{}, real)
}

// dying is how many die at once: never so many of a small fleet that they look like a mass failure.
func (m *modelled) dying() int { return max(1, min(3, m.f.Replicas/4)) }

// deaths lets made-up owners die that hold as many devices as the others.
func (m *modelled) deaths() (reckoned, measured cost) {
	deaths := m.dying()
	first, of := m.dead, m.claims/m.f.Partitions
	m.dead += deaths
	ids := owners("dead", m.dead)[first:]
	m.each(func(part *rig) {
		for i, id := range ids {
			require.NoError(m.t, part.rdb.Set(m.t.Context(), part.keys.Heartbeat(id), "0/0", time.Hour).Err())
			part.fill(m.f.Devices+(first+i)*of, of, true, id)
			require.NoError(m.t, part.rdb.SAdd(m.t.Context(), part.keys.Roster(), id).Err())
		}
	})
	m.rest(2 * m.f.Interval) // the leaders have seen them alive
	real := m.measure(deaths*m.claims, func() {
		m.each(func(part *rig) { part.die(ids...) })
		m.until(func() bool {
			wait.For(m.t.Context(), 20*time.Millisecond)
			return m.left() == m.f.Devices
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
			wait.For(m.t.Context(), 20*time.Millisecond)
			return m.left() == m.f.Devices
		})
	})
	m.rest(m.f.TTL + 3*time.Second) // the hold is over
	return m.reckon(m.f, scale.Scenario{Flush: true}, real)
}
