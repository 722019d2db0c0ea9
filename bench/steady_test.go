package bench

import (
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// steady is what is paid while nothing happens: on a Redis 8, if there is one, which has a TTL of
// each field.
func steady(r *rig) {
	if binary := os.Getenv("REDIS8_SERVER"); binary != "" {
		r = onServer(r.T, r.size, r.paper, redistest.StartNamed(r, binary, exact...))
	}
	const interval = registry.DefaultHeartbeatInterval
	n := r.replicas * r.claims
	r.section("Steady state: nobody dies")
	r.say("On %s, %d replicas hold %s claims each, and beat every %s. Redis CPU in %% of one core, less the %.2f %% that the server "+
		"takes while idle. Ours is the median of %d beats, watched each %s.", r.server(), r.replicas, many(r.claims), interval,
		100*r.idle, r.rounds, r.beat)

	beat, scan, gap := r.fleet()
	// Beats may come more often here, and cost accordingly.
	quiet := beat.cpu.Seconds() / beat.wall.Seconds() * float64(r.beat) / float64(interval)
	all := quiet + scan.cpu.Seconds()/gap.Seconds()
	var rows [][]string
	add := func(name string, k kind, share float64, how string) {
		rows = append(rows, []string{name, string(k), fmt.Sprintf("%.3f %%", 100*share), fmt.Sprintf("%.1f", share/max(1e-9, all)), how})
	}
	add("beats: owners look at a tenth of their claims", ours, quiet, fmt.Sprintf("%s a beat of all", brief(beat.cpu)))
	add("full scans", ours, all-quiet, fmt.Sprintf("%s a full scan, every %s", brief(scan.cpu), gap.Round(time.Second)))
	add("in all", ours, all, "")
	refresh := func(name string, c cost) (share float64) {
		share = c.cpu.Seconds() / interval.Seconds()
		add(name, peer, share, fmt.Sprintf("%s a refresh, every %s", brief(c.cpu), interval))
		return share
	}
	refresh("a key with TTL per device, PEXPIRE", r.keyPerDevice(n))
	if fields, ok := r.hexpire(n); ok {
		share := refresh("a TTL per field, HEXPIRE", fields)
		r.promiseMore("steady state, full scans included: times less than HEXPIRE of every field", "%.1f", share/max(1e-9, all), 8)
	}
	r.table([]string{"way", "", "Redis CPU, of a core", "× ours in all", "how"}, rows)
	r.say("Where the time of a beat went: %s.", beat.dearest())
	r.promise("steady state, full scans included, % of a core", "%.3f", 100*all, 0.4)
}

// fleet runs real replicas and watches Redis for some beats while they look at their claims, and
// during some full scans, the next of which is due after gap.
func (r *rig) fleet() (beat, scan cost, gap time.Duration) {
	r.clear()
	r.warmFor(r.beat)
	fleet := make([]*replica, r.replicas)
	for i := range fleet {
		fleet[i] = r.start(madeUp, func(rc *registry.Config, jc *janitor.Config) {
			rc.HeartbeatInterval, rc.HeartbeatTTL = r.beat, 3*r.beat
			jc.Interval = time.Minute
		}, i == 0)
		if i == 0 {
			fleet[0].leads()
		}
		for j := range r.claims {
			fleet[i].reg.Register(imei(i*r.claims+j), nobody)
		}
	}
	n := r.replicas * r.claims
	r.until(func() bool {
		wait.For(r.Context(), 100*time.Millisecond)
		return r.entries() == n
	})
	r.rest(11 * r.beat) // the storm is over
	var beats, scans result
	for range r.rounds {
		beats.costs = append(beats.costs, r.measure(n, func() { r.rest(r.beat) })) // in which everybody beats once
	}
	for _, p := range fleet { // who leads scans; nobody else can
		for range r.rounds {
			if p.jan.Status().Leading {
				scans.costs = append(scans.costs, r.measure(n, func() { require.Zero(r, p.pass().Condemned) }))
				last := p.jan.Status().FullScan
				gap = last.NextBy.Sub(last.Started)
			}
		}
	}
	require.NotEmpty(r, scans.costs, "nobody leads")
	stopAll(fleet)
	return beats.mid(), scans.mid(), gap
}

// keyPerDevice measures one refresh of a key for each device.
func (r *rig) keyPerDevice(n int) cost {
	r.clear()
	each := func(do func(p redis.Pipeliner, key string)) {
		for i := 0; i < n; i += batch {
			_, err := r.rdb.Pipelined(r.Context(), func(p redis.Pipeliner) error {
				for j := i; j < min(n, i+batch); j++ {
					do(p, "device:"+imei(j))
				}
				return nil
			})
			require.NoError(r, err)
		}
	}
	each(func(p redis.Pipeliner, key string) { p.Set(r.Context(), key, owner("live", 0), time.Hour) })
	var all result
	for range r.rounds {
		all.costs = append(all.costs, r.measure(n, func() {
			each(func(p redis.Pipeliner, key string) { p.PExpire(r.Context(), key, 90*time.Minute) })
		}))
	}
	return all.mid()
}

// hexpire measures one refresh of each field's own TTL, if the server offers that.
func (r *rig) hexpire(n int) (c cost, ok bool) {
	r.clear()
	r.fill(0, n, false, owners("live", bystanders)...)
	refresh := func(first, n int) error {
		fields := make([]string, n)
		for i := range fields {
			fields[i] = imei(first + i)
		}
		// Long enough for none to expire while others are measured, whatever the machine does.
		set, err := r.rdb.HExpire(r.Context(), r.keys.Registry(), time.Hour, fields...).Result()
		for _, code := range set {
			require.EqualValues(r, 1, code, "a field has no TTL")
		}
		return err
	}
	if err := refresh(0, 1); err != nil {
		require.ErrorContains(r, err, "unknown command")
		return c, false
	}
	var costs []cost
	for range r.rounds {
		costs = append(costs, r.measure(n, func() {
			for i := 0; i < n; i += batch {
				require.NoError(r, refresh(i, min(batch, n-i)))
			}
		}))
	}
	return result{costs: costs}.mid(), true
}
