package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

// crowdRows are a Redis of a kind that is not supported, and too much of everything.
var crowdRows = []row{
	{28, "ClusterNodeRefused", false, 0, nil, clusterNodeRefused},
	{29, "ThousandContenders", false, 60, nil, under(func() fault { return &contenders{} }, (*world).oneHolder)},
	{29, "PoolExhausted", false, 120, nil, under(func() fault { return &poolExhausted{} }, (*world).controlUnaffected)},
	{29, "PoisonEntries", false, 60, nil, under(func() fault { return &poison{} }, (*world).sparedPoison)},
}

// One address of a Cluster is refused, with an error that names it: at start, or as soon as it answers, since a
// replica starts without Redis too. Slots that migrate and nodes that are lost come with the support of Cluster: not done.
func clusterNodeRefused(w *world) {
	node := redistest.Start(w.t, "--cluster-enabled", "yes")
	refused := func(r *replica) {
		require.Equal(w.t, 1, r.exit(), r.Log())
		require.Contains(w.t, r.Log(), "node of a Redis Cluster, which is not supported yet: "+r.proxy.Addr())
		w.result.Hits++
	}
	start := func() *replica { return w.launchBehind(newProxy(w.t, node.Addr()), "one") }
	refused(start())
	node.Kill()
	early := start()
	early.ready()
	node.Restart()
	refused(early)
	require.Zero(w.t, node.Client().DBSize(w.t.Context()).Val(), "something was written")

	w.settings["REDIS_URL"] = "redis://" + node.Addr() + "?addr=127.0.0.1:1"
	several := start()
	require.Equal(w.t, 2, several.exit(), several.Log())
	require.Contains(w.t, several.Log(), "Cluster, which is not supported yet")
	w.result.Row, w.result.Scenario, w.result.Took = w.row.nr, w.row.name, time.Since(w.began)
}

// contenders are a thousand more who want the lease. Each keeps it for a moment when it gets it.
type contenders struct {
	calm
	began, killed time.Time
	cancel        context.CancelFunc
	wg            sync.WaitGroup
	led           atomic.Int64
	twice         atomic.Int64 // found to lead at the same time
}

const crowded = 1000

func (f *contenders) fail(w *world) {
	o := lease.Options(w.server.Options())
	o.PoolSize = 64
	client := redis.NewClient(o)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = func() {
		cancel()
		f.wg.Wait()
		_ = client.Close()
	}
	w.t.Cleanup(func() { f.cancel() })
	electors := make([]*lease.Elector, crowded)
	for i := range electors {
		e, err := lease.New(lease.Config{
			Client: client, Key: w.Lease(), Instance: fmt.Sprintf("contender-%d", i), TTL: leaseTTL, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(w.t, err)
		electors[i] = e
	}
	leader, before, begun := w.holder(), w.commands(), time.Now()
	f.began = begun
	for _, e := range electors {
		f.wg.Go(func() {
			_ = e.Run(ctx, func(ctx context.Context, _ *lease.Term) error {
				f.led.Add(1)
				select {
				case <-time.After(300 * time.Millisecond):
				case <-ctx.Done():
				}
				return nil
			})
		})
	}
	f.wg.Go(func() {
		for ctx.Err() == nil {
			f.twice.Add(int64(atOnce(electors)))
			lasting(10 * time.Millisecond)
		}
	})
	lasting(2 * leaseTTL)
	w.t.Logf("%s led before, %s after %v among %d contenders; %.0f commands/s", leader, w.holder(), time.Since(begun).Round(time.Second), crowded,
		float64(w.commands()-before)/time.Since(begun).Seconds())
	for _, r := range w.fleet() { // which must still be one of them
		if r.id == w.holder() {
			f.killed, _ = w.kill(r)
			break
		}
	}
	require.False(w.t, f.killed.IsZero(), "none of the replicas leads any more")
	eventually(w.t, "another leads", func() bool { return f.led.Load() > 0 || w.holder() != "" && w.holder() != leader })
	lasting(leaseTTL)
	f.hit(crowded)
}

// atOnce is how many of them lead while the first found does.
func atOnce(electors []*lease.Elector) (n int) {
	var first *lease.Term
	for _, e := range electors {
		term, leads := e.Term()
		switch {
		case !leads:
		case first == nil:
			first = term
		case first.Valid() && term.Valid() && first.Valid():
			n++
		}
	}
	return n
}

func (w *world) commands() (n int64) {
	w.t.Helper()
	text := w.InfoMap(w.t.Context(), "stats").Val()["Stats"]["total_commands_processed"]
	_, err := fmt.Sscan(text, &n)
	require.NoError(w.t, err)
	return n
}

func (f *contenders) recover(*world) { f.cancel() }

// oneHolder: the leader went on while it lived, and then one after the other led, the first in time.
func (w *world) oneHolder(v *judge.Verdict) {
	f := w.fault.(*contenders)
	require.Zero(w.t, f.twice.Load(), "two led at once")
	lost := 0
	for _, l := range v.Leases {
		if l.At.After(f.began) && l.At.Before(f.killed) {
			lost++
		}
	}
	w.t.Logf("%d terms of contenders; the replicas' leader was changed %d times before it was killed", f.led.Load(), lost)
	require.LessOrEqual(w.t, lost, 1, "the lease was lost to the crowd")
	w.within("new leader after the kill", v.NextLease(f.killed, "").Sub(f.killed), leaseTTL+leaseRetry)
}

// poolExhausted lets everything of the leader wait that is not control, while its devices report and others register.
type poolExhausted struct {
	calm
	leader *replica
	late   *proxy.Rule
	back   func()
	began  time.Time
	over   time.Time
	conns  int
}

// isLoad: a request that goes through the client of the load.
func isLoad(r proxy.Request) bool {
	switch r[0] {
	case "XADD", "XREAD", "HSCAN", "SSCAN", "HMGET", "SISMEMBER":
		return true
	}
	return isRegister(r) || isRelease(r) || isHeal(r) || isBatch(r)
}

func (f *poolExhausted) fail(w *world) {
	f.leader = w.leader()
	f.back = w.away(f.leader.id)
	f.began = time.Now()
	f.late = f.leader.proxy.DelayEach(isLoad, 2*time.Second)
	for time.Since(f.began) < ttl+interval {
		var wg sync.WaitGroup
		for i := 0; i < w.devices.Len(); i += 2 { // the silent ones, which traffic leaves alone
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(w.t.Context(), actWithin)
				defer cancel()
				if w.devices.at(i) == f.leader.devices {
					_ = w.devices.report(ctx, i) // it lets go when it is not answered, and comes again
				} else {
					_ = w.devices.move(ctx, i, f.leader)
				}
			})
		}
		wg.Wait()
		f.conns = max(f.conns, f.leader.proxy.Connections())
	}
	f.over = time.Now()
}

func (f *poolExhausted) recover(*world) {
	f.hit(f.late.Hits())
	f.late.End()
	f.back()
}

// controlUnaffected: lease and heartbeats have connections of their own.
func (w *world) controlUnaffected(v *judge.Verdict) {
	f := w.fault.(*poolExhausted)
	w.t.Logf("%d requests were late, on up to %d connections", w.fault.hits(), f.conns)
	require.Zero(w.t, v.Evicted(""))
	for _, t := range v.Terms {
		require.False(w.t, t.At.After(f.began) && t.At.Before(f.over), "the lease was lost: %s leads", t.Leader)
	}
	h, err := history.Read(w.server.Dir())
	require.NoError(w.t, err)
	var beats int
	var last time.Time
	facts := w.facts(nil)
	for i, s := range judge.Spans(h, &facts) {
		for _, c := range h[i].Commands {
			if len(c) < 2 || c[1] != w.Heartbeat(f.leader.id) || s.From.Before(f.began) || s.From.After(f.over) {
				continue
			}
			require.Equal(w.t, "SET", c[0], "its heartbeat expired")
			if alone := len(h[i].Commands) <= 2; alone { // what comes with an entry is load
				if beats++; beats > 1 {
					require.Less(w.t, s.From.Sub(last), ttl, "two beats far apart")
				}
				last = s.From
			}
		}
	}
	w.t.Logf("%d beats in %v", beats, f.over.Sub(f.began).Round(time.Second))
	require.GreaterOrEqual(w.t, beats, 2)
}

// poison are entries and owners that nobody of ours writes.
type poison struct {
	calm
	stays, goes map[string]string
	token       string
	owner       string // on the roster
}

func (f *poison) fail(w *world) {
	long := strings.Repeat("x", 1<<10)
	f.goes = map[string]string{
		"":                                    "ghost", // an empty IMEI
		"with a space\nand a line":            "ghost",
		strings.Repeat("9", 64<<10):           "ghost",
		"850000000000001":                     "gh/ost",
		"850000000000002":                     "g h o s t",
		"850000000000003":                     "{ghost}*?[a]",
		"connections:registry":                "instance:heartbeat:one",
		"850000000000004; FLUSHALL":           "$(ghost)",
		fmt.Sprintf("86%s", long):             "ghost",
		"850000000000005\x00with a zero byte": "ghost",
	}
	// Such an owner can be no instance; nothing can be said of its heartbeat, so they are kept, and counted.
	f.stays = map[string]string{
		"870000000000001": "",
		"870000000000002": "gh\nost",
		"870000000000003": long,
		"870000000000004": strings.Repeat("v", 1<<20),
		"870000000000005": "\xff\xfe",
	}
	f.owner = "ro\nster"
	f.token = w.Get(w.t.Context(), w.Lease()).Val()
	w.meddle("poison", func(p redis.Pipeliner) {
		for _, entries := range []map[string]string{f.goes, f.stays} {
			for imei, owner := range entries {
				p.HSet(w.t.Context(), w.Registry(), imei, owner)
				f.hit(1)
			}
		}
		p.SAdd(w.t.Context(), w.Roster(), f.owner, "ros/ter")
	})
	before := w.spared()
	w.plant("dead", 100, true)
	eventually(w.t, "everything else is swept", func() bool {
		for imei := range f.goes {
			if w.HExists(w.t.Context(), w.Registry(), imei).Val() {
				return false
			}
		}
		return w.SCard(w.t.Context(), w.Devices("dead")).Val() == 0 && !w.SIsMember(w.t.Context(), w.Roster(), "ros/ter").Val()
	})
	eventually(w.t, "what stays is counted", func() bool { return w.spared() >= before+2*float64(len(f.stays)) })
	for imei, owner := range f.stays {
		require.Equal(w.t, owner, w.HGet(w.t.Context(), w.Registry(), imei).Val(), "%q must stay", imei)
	}
	require.Equal(w.t, f.token, w.Get(w.t.Context(), w.Lease()).Val(), "the lease changed hands")
}

// spared is how many candidates all replicas say that they could not read.
func (w *world) spared() (n float64) {
	w.t.Helper()
	for _, r := range w.fleet() {
		body, err := r.get("/metrics")
		require.NoError(w.t, err)
		one, err := sum([]byte(strings.ReplaceAll(string(body), `janitor_spared_total{reason="unreadable"}`, "unreadable")), "unreadable")
		require.NoError(w.t, err)
		n += one
	}
	return n
}

// recover takes out by hand what no leader touches, as an operator has to.
func (f *poison) recover(w *world) {
	w.meddle("poison is taken out", func(p redis.Pipeliner) {
		for imei := range f.stays {
			p.HDel(w.t.Context(), w.Registry(), imei)
		}
		p.SRem(w.t.Context(), w.Roster(), f.owner)
	})
}

// sparedPoison: each entry that could be judged was evicted once, and nothing else but what was planted.
func (w *world) sparedPoison(v *judge.Verdict) {
	f := w.fault.(*poison)
	require.Equal(w.t, len(f.goes)+100, v.Evicted("")-v.FalseDeaths)
}
