package bench

import (
	"fmt"
	"os"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

// others are the servers that the steady state is measured on besides the usual one, where they can
// be had. make bench sees to that.
var others = []struct{ name, setting, script string }{
	{"Redis 8", "REDIS8_SERVER", "scripts/redis 8"},
	{"Valkey", "VALKEY_SERVER", "scripts/redis valkey"},
}

// steady is what is paid while nothing happens.
func steady(r *rig) {
	interval := registry.DefaultHeartbeatInterval
	r.section("Steady state: nobody dies")
	r.say("%d replicas hold %s claims each, and beat every %s. Redis CPU in %% of one core, less what the same server takes while idle; "+
		"ours and the peers one after the other on each. Ours is the median of %d beats.",
		r.replicas, many(r.claims), interval, r.rounds)

	here := r.steadyState()
	all := []steadyState{here}
	rows := here.rows
	for _, o := range others {
		binary := os.Getenv(o.setting)
		if r.rounds == 1 {
			continue // a look at the usual server
		}
		if binary == "" {
			rows = append(rows, []string{o.name, "all of them", "", "not run", "", "`" + o.script + "` fetches it, " + o.setting + " names it"})
			continue
		}
		there := onServer(r.t, r.size, r.paper, redistest.StartNamed(r.t, binary, exact...)).steadyState()
		all = append(all, there)
		rows = append(rows, there.rows...)
	}
	r.table([]string{"server", "way", "", "Redis CPU, of a core", "× ours in all", "how"}, rows)

	judged := false
	for _, s := range all {
		r.say("Where the time went on %s, without full scans: %s.", s.server, s.own.dearest())
		if s.fields > 0 {
			r.promiseMore("steady state, full scans included: times less than HEXPIRE of every field, "+s.server, "%.1f", s.fields/max(1e-9, s.all), 8)
			judged = true
		}
	}
	if !judged && r.rounds > 1 {
		r.notRun("steady state, full scans included: times less than HEXPIRE of every field", "≥ 8", "no server with HEXPIRE: REDIS8_SERVER names a Redis 8")
	}
	r.promise("steady state, full scans included, % of a core", "%.3f", 100*here.all, 0.25)
	for _, s := range all {
		r.promise("steady state, full scans included: × the same server idle, "+s.server, "%.2f", (s.idle+s.all)/s.idle, 2)
	}
}

// steadyState is what was paid on one server.
type steadyState struct {
	server string
	rows   [][]string
	own    cost    // of a beat of all, without full scans
	all    float64 // share of a core, full scans included
	idle   float64 // share that the server takes by itself
	fields float64 // with a TTL per field; 0: the server has none
}

func (r *rig) steadyState() (s steadyState) {
	n := r.replicas * r.claims
	const interval = registry.DefaultHeartbeatInterval
	s.server = r.server()
	add := func(name string, k kind, share float64, how string) {
		s.rows = append(s.rows, []string{s.server, name, string(k), fmt.Sprintf("%.3f %%", 100*share), fmt.Sprintf("%.1f", share/max(1e-9, s.all)), how})
	}

	f := r.fleet()
	s.own, s.idle = f.own, r.idle
	scale := float64(r.beat) / float64(interval) // beats may come more often, and cost accordingly
	share := func(c cost) float64 { return scale * c.cpu.Seconds() / c.wall.Seconds() }
	how := func(c cost) string {
		text := fmt.Sprintf("%s in %s, %.0f commands/s, %.1f kB/s in, %.1f kB/s out", brief(c.cpu), c.wall.Round(time.Second),
			float64(c.commands)/c.wall.Seconds(), float64(c.in)/c.wall.Seconds()/1e3, float64(c.out)/c.wall.Seconds()/1e3)
		if scale < 1 {
			text += fmt.Sprintf(", at a beat every %s: times %.3f", r.beat, scale)
		}
		return text
	}
	scan := f.scan.cpu.Seconds() / f.gap.Seconds()
	quiet := share(f.own)
	s.all = quiet + scan
	add("the fleet without devices", ours, share(f.bare), how(f.bare))
	add("owners look at a tenth of their claims a beat", ours, share(f.own), how(f.own))
	add("full scans", ours, scan, fmt.Sprintf("%s a full scan, every %s", brief(f.scan.cpu), f.gap.Round(time.Second)))
	add("in all", ours, s.all, fmt.Sprintf("the second and the third; idle %.2f %%", 100*r.idle))
	add("with a full scan every 60 s", ours, quiet+f.scan.cpu.Seconds()/60, "where each interval has something to find")

	expire := r.keyPerDevice(n)
	add("a key with TTL per device, PEXPIRE", peer, expire.cpu.Seconds()/interval.Seconds(), fmt.Sprintf("%s a refresh, every %s", brief(expire.cpu), interval))
	const perField = "a TTL per field, HEXPIRE"
	if fields, ok := r.hexpire(n); ok {
		s.fields = fields.cpu.Seconds() / interval.Seconds()
		add(perField, peer, s.fields, fmt.Sprintf("%s a refresh, every %s", brief(fields.cpu), interval))
	} else {
		s.rows = append(s.rows, []string{s.server, perField, string(peer), "not run", "", "this server has no HEXPIRE"})
	}
	r.clear()
	return s
}

// fleetCosts are medians.
type fleetCosts struct {
	bare cost // of a beat of all, before there were devices
	own  cost // see steadyState
	scan cost // of a full scan
	gap  time.Duration
}

// fleet runs real replicas and watches Redis for some beats while they look at their claims, and
// during some full scans.
func (r *rig) fleet() (f fleetCosts) {
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
	}
	beat := func() { r.rest(r.beat) } // in each everybody beats once
	beat()
	var bare, own, scans []cost
	for range r.rounds {
		bare = append(bare, r.measure(0, beat))
	}
	for i, p := range fleet {
		for j := range r.claims {
			p.reg.Register(imei(i*r.claims+j), nobody)
		}
	}
	n := r.replicas * r.claims
	r.until(func() bool {
		wait.For(r.t.Context(), 100*time.Millisecond)
		return r.entries() == n
	})
	r.rest(11 * r.beat) // the storm is over
	for range r.rounds {
		own = append(own, r.measure(n, beat))
	}
	for _, p := range fleet { // who leads does; nobody else can
		for range r.rounds {
			if p.jan.Status().Leading {
				scans = append(scans, r.measure(n, func() { require.Zero(r.t, p.pass().Condemned) }))
				last := p.jan.Status().FullScan
				f.gap = last.NextBy.Sub(last.Started)
			}
		}
	}
	require.NotEmpty(r.t, scans, "nobody leads")
	stopAll(fleet)
	f.bare = result{costs: bare}.mid()
	f.own, f.scan = result{costs: own}.mid(), result{costs: scans}.mid()
	return f
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
		set, err := r.rdb.HExpire(r.t.Context(), r.keys.Registry(), time.Hour, fields...).Result()
		for _, code := range set {
			require.EqualValues(r.t, 1, code, "a field has no TTL")
		}
		return err
	}
	if err := refresh(0, 1); err != nil {
		require.ErrorContains(r.t, err, "unknown command")
		return c, false
	}
	var costs []cost
	for range r.rounds {
		costs = append(costs, r.measure(n, func() {
			for i := 0; i < n; i += batch {
				require.NoError(r.t, refresh(i, min(batch, n-i)))
			}
		}))
	}
	return result{costs: costs}.mid(), true
}
