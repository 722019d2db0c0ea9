package bench

import (
	"fmt"
	"os"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// steady is what is paid while nothing happens.
func steady(r *rig) {
	n := r.replicas * r.claims
	interval := registry.DefaultHeartbeatInterval
	r.section("Steady state: nobody dies")
	r.say("%d replicas hold %s claims each, and beat every %s. Redis CPU in %% of one core, less what an idle server takes (%.2f %%).",
		r.replicas, many(r.claims), interval, 100*r.idle)

	var rows [][]string
	var bars []bar
	quiet := 0.0
	add := func(name string, k kind, share float64, how string) {
		rows = append(rows, []string{name, string(k), fmt.Sprintf("%.3f %%", 100*share), fmt.Sprintf("%.1f", share/max(1e-9, quiet)), how})
		bars = append(bars, bar{name, k, 100 * share, fmt.Sprintf("%.3f %%", 100*share)})
	}

	between, pass := r.fleet(interval)
	scale := 1.0
	if r.steady < 2*interval { // beats come more often then, and cost accordingly
		scale = float64(r.steady/2) / float64(interval)
	}
	quiet = scale * between.cpu.Seconds() / between.wall.Seconds()
	audited := quiet + pass.cpu.Seconds()/60
	how := fmt.Sprintf("%s in %s, %.0f commands/s, %.1f kB/s in, %.1f kB/s out", brief(between.cpu), between.wall.Round(time.Second),
		float64(between.commands)/between.wall.Seconds(), float64(between.in)/between.wall.Seconds()/1e3, float64(between.out)/between.wall.Seconds()/1e3)
	if scale < 1 {
		how += fmt.Sprintf(", at a beat every %s: times %.3f", r.steady/2, scale)
	}
	add("between audits", ours, quiet, how)
	add("with an audit every 60 s", ours, audited, fmt.Sprintf("%s an audit, / 60 s, and the above", brief(pass.cpu)))

	expire := r.keyPerDevice(n)
	add("a key with TTL per device, PEXPIRE", peer, expire.cpu.Seconds()/interval.Seconds(), fmt.Sprintf("%s a refresh, every %s", brief(expire.cpu), interval))

	want := "≥ 6"
	what := "steady state between audits: times less than HEXPIRE of every field"
	if fields, why := r.hexpire(n); why == "" {
		share := fields.cpu.Seconds() / interval.Seconds()
		add("a TTL per field, HEXPIRE", peer, share, fmt.Sprintf("%s a refresh, every %s", brief(fields.cpu), interval))
		r.promiseMore(what, "%.1f", share/max(1e-9, quiet), 6)
	} else {
		rows = append(rows, []string{"a TTL per field, HEXPIRE", string(peer), "not run", "", why})
		r.notRun(what, want, why)
	}
	r.table([]string{"way", "", "Redis CPU, of a core", "× between audits", "how"}, rows)
	r.say("Where the time between audits went: %s.", between.dearest())
	r.plot("steady", "Redis CPU while nothing happens", barChart("Redis CPU while nobody dies, "+many(n)+" live entries", "% of a core", barGroup{"", bars}))
	r.promise("steady state between audits, % of a core", "%.3f", 100*quiet, 0.2)
}

// fleet runs real replicas and watches Redis for a while between audits, then during one.
func (r *rig) fleet(interval time.Duration) (between, pass cost) {
	r.clear()
	beat := min(interval, r.steady/2)
	r.warmFor(beat)
	fleet := make([]*replica, r.replicas)
	for i := range fleet {
		fleet[i] = r.start(madeUp, func(rc *registry.Config, _ *janitor.Config) {
			rc.HeartbeatInterval, rc.HeartbeatTTL = beat, 3*beat
		}, i == 0)
		if i == 0 {
			fleet[0].leads()
		}
		for j := range r.claims {
			fleet[i].reg.Register(r.t.Context(), imei(i*r.claims+j))
		}
	}
	n := r.replicas * r.claims
	r.until(func() bool {
		wait.For(r.t.Context(), 100*time.Millisecond)
		return r.entries() == n
	})
	wait.For(r.t.Context(), beat) // the storm is over, and each has beaten
	between = r.measure(n, func() { wait.For(r.t.Context(), r.steady) })
	for _, p := range fleet { // who leads does; nobody else can
		if p.jan.Status().Leading {
			pass = r.measure(n, func() { require.Zero(r.t, p.pass().Condemned) })
		}
	}
	require.NotZero(r.t, pass.n, "nobody leads")
	stopAll(fleet)
	return between, pass
}

// keyPerDevice measures one refresh of a key for each device.
func (r *rig) keyPerDevice(n int) cost {
	r.clear()
	each := func(do func(i int)) {
		for i := range n {
			do(i)
		}
	}
	pipe := r.rdb.Pipeline()
	flush := func(i int) {
		if pipe.Len() == batch || i == n-1 {
			_, err := pipe.Exec(r.t.Context())
			require.NoError(r.t, err)
		}
	}
	each(func(i int) { pipe.Set(r.t.Context(), "device:"+imei(i), owner("live", i%100), time.Hour); flush(i) })
	var costs []cost
	for range r.rounds {
		costs = append(costs, r.measure(n, func() {
			each(func(i int) { pipe.PExpire(r.t.Context(), "device:"+imei(i), 90*time.Minute); flush(i) })
		}))
	}
	return result{costs: costs}.mid()
}

// hexpire measures one refresh of each field's own TTL, on a server that offers that; else it says why not.
func (r *rig) hexpire(n int) (c cost, why string) {
	server := os.Getenv("REDIS8_SERVER")
	if server == "" {
		server = os.Getenv("VALKEY_SERVER")
	}
	if server == "" || *sizeFlag == smoke {
		return c, "name a Redis 8 by REDIS8_SERVER, or a Valkey 9 by VALKEY_SERVER"
	}
	r.t.Setenv("REDIS_SERVER", server)
	other := &rig{size: r.size, paper: r.paper, t: r.t, srv: redistest.Start(r.t)}
	other.rdb = patient(r.t, other.srv)
	other.settleIdle()
	ids := owners("live", bystanders)
	other.fill(0, n, false, ids...)
	var costs []cost
	for range r.rounds {
		costs = append(costs, other.measure(n, func() {
			for i := 0; i < n && why == ""; i += batch {
				fields := make([]string, 0, batch)
				for j := i; j < min(n, i+batch); j++ {
					fields = append(fields, imei(j))
				}
				if err := other.rdb.HExpire(r.t.Context(), other.keys.Registry(), 90*time.Second, fields...).Err(); err != nil {
					why = err.Error()
				}
			}
		}))
	}
	return result{costs: costs}.mid(), why
}
