package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/lease"
)

// crowdRows are too much of everything.
var crowdRows = []row{
	{29, "ThousandContenders", false, 60, nil, under(&contenders{}, (*environment).oneHolder)},
	{29, "PoolExhausted", false, 120, nil, under(&poolExhausted{}, (*environment).controlUnaffected)},
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

func (f *contenders) fail(w *environment) {
	o := lease.Options(w.Server.Options())
	o.PoolSize = 64
	client := redis.NewClient(o)
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = func() {
		cancel()
		f.wg.Wait()
		_ = client.Close()
	}
	w.Cleanup(func() { f.cancel() })
	electors := make([]*lease.Elector, crowded)
	for i := range electors {
		e, err := lease.New(lease.Config{
			Client: client, Key: w.Lease(), Instance: fmt.Sprintf("contender-%d", i), TTL: harness.LeaseTTL, Logger: slog.New(slog.DiscardHandler),
		})
		require.NoError(w, err)
		electors[i] = e
	}
	leader, before, begun := w.Holder(), w.commands(), time.Now()
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
			harness.Lasting(10 * time.Millisecond)
		}
	})
	harness.Lasting(2 * harness.LeaseTTL)
	w.Logf("%s led before, %s after %v among %d contenders; %.0f commands/s", leader, w.Holder(), time.Since(begun).Round(time.Second), crowded,
		float64(w.commands()-before)/time.Since(begun).Seconds())
	for _, r := range w.Replicas() { // which must still be one of them
		if r.ID == w.Holder() {
			f.killed, _ = w.Kill(r)
			break
		}
	}
	require.False(w, f.killed.IsZero(), "none of the replicas leads any more")
	harness.Eventually(w, "another leads", func() bool { return f.led.Load() > 0 || w.Holder() != "" && w.Holder() != leader })
	harness.Lasting(harness.LeaseTTL)
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

func (w *environment) commands() (n int64) {
	w.Helper()
	text := w.InfoMap(w.Context(), "stats").Val()["Stats"]["total_commands_processed"]
	_, err := fmt.Sscan(text, &n)
	require.NoError(w, err)
	return n
}

func (f *contenders) recover(*environment) { f.cancel() }

// oneHolder: the leader went on while it lived, and then one after the other led, the first in
// time.
func (w *environment) oneHolder(v *judge.Verdict) {
	f := w.fault.(*contenders)
	require.Zero(w, f.twice.Load(), "two led at once")
	lost := 0
	for _, l := range v.Leases {
		if l.At.After(f.began) && l.At.Before(f.killed) {
			lost++
		}
	}
	w.Logf("%d terms of contenders; the replicas' leader was changed %d times before it was killed", f.led.Load(), lost)
	require.LessOrEqual(w, lost, 1, "the lease was lost to the crowd")
	w.within("new leader after the kill", v.NextLease(f.killed, "").Sub(f.killed), harness.LeaseTTL+harness.LeaseRetry)
}

// poolExhausted lets everything of the leader wait that is not control, while its devices report
// and others register.
type poolExhausted struct {
	calm
	leader *harness.Replica
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
	return harness.IsRegister(r) || harness.IsRelease(r) || harness.IsHeal(r) || harness.IsBatch(r)
}

func (f *poolExhausted) fail(w *environment) {
	f.leader = w.Leader()
	f.back = w.Outage(f.leader.ID)
	f.began = time.Now()
	f.late = f.leader.Proxy.DelayEach(isLoad, 2*time.Second)
	for time.Since(f.began) < harness.TTL+harness.Interval {
		var wg sync.WaitGroup
		for i := 0; i < w.Fleet.Len(); i += 2 { // the silent ones, which traffic leaves alone
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(w.Context(), harness.ActWithin)
				defer cancel()
				if w.Fleet.At(i) == f.leader.Devices {
					_ = w.Fleet.Send(ctx, i) // it lets go when it is not answered, and comes again
				} else {
					_ = w.Fleet.Connect(ctx, i, f.leader)
				}
			})
		}
		wg.Wait()
		f.conns = max(f.conns, f.leader.Proxy.Connections())
	}
	f.over = time.Now()
}

func (f *poolExhausted) recover(*environment) {
	f.hit(f.late.Hits())
	f.late.End()
	f.back()
}

// controlUnaffected: lease and heartbeats have connections of their own.
func (w *environment) controlUnaffected(v *judge.Verdict) {
	f := w.fault.(*poolExhausted)
	w.Logf("%d requests were late, on up to %d connections", w.fault.hits(), f.conns)
	require.Zero(w, v.Evicted(""))
	for _, t := range v.Terms {
		require.False(w, t.At.After(f.began) && t.At.Before(f.over), "the lease was lost: %s leads", t.Leader)
	}
	h := w.History()
	var beats int
	var last time.Time
	facts := w.Facts(nil)
	for i, s := range judge.Spans(h, &facts) {
		for _, c := range h[i].Commands {
			if len(c) < 2 || c[1] != w.Heartbeat(f.leader.ID) || s.From.Before(f.began) || s.From.After(f.over) {
				continue
			}
			require.Equal(w, "SET", c[0], "its heartbeat expired")
			if alone := len(h[i].Commands) <= 2; alone { // what comes with an entry is load
				if beats++; beats > 1 {
					require.Less(w, s.From.Sub(last), harness.TTL, "two beats far apart")
				}
				last = s.From
			}
		}
	}
	w.Logf("%d beats in %v", beats, f.over.Sub(f.began).Round(time.Second))
	require.GreaterOrEqual(w, beats, 2)
}

// rollingRows change a fleet replica by replica, while devices go on.
var rollingRows = []row{
	{37, "RollingSettingsAndPassword", false, 60, nil, under(&rolling{}, func(w *environment, v *judge.Verdict) {
		require.Equal(w, v.Evicted(""), v.Evicted("ghost"), "somebody who lives was evicted")
		require.Equal(w, swept, v.Evicted("ghost"))
		require.Contains(w, reasonsOf(v), "settings")
		w.acknowledged()
	})},
}

// rolling starts each replica again with slower heartbeats and a new password, forgets the old
// password, and then goes back to the usual settings.
type rolling struct {
	calm
	looks atomic.Int64 // at entries of devices that do nothing
}

const service = "service"

func (*rolling) setup(w *environment) {
	require.NoError(w, w.acl(service, "on", ">old", ">new", "~*", "&*", "+@all").Err())
	for _, id := range []string{"one", "two", "three"} {
		w.Logins[id] = service + ":old@"
	}
}

func (f *rolling) fail(w *environment) {
	begun, silent := time.Now(), w.silent()
	for _, r := range w.Replicas() {
		f.counts(r, silent)
	}
	usual := maps.Clone(w.Settings)
	w.Settings["HEARTBEAT_INTERVAL"], w.Settings["HEARTBEAT_TTL"] = slowInterval.String(), slowTTL.String()
	for range 3 {
		id := w.Replicas()[0].ID // the oldest
		w.Logins[id] = service + ":new@"
		f.roll(w, silent)
		w.raised("settings")
		w.SlowerSettings(w.Replicas()[2], slowInterval, slowTTL)
		w.Moves()
		harness.Lasting(harness.Interval)
	}
	require.NoError(w, w.acl(service, "<old").Err())
	for _, r := range w.Replicas() {
		f.hit(r.Proxy.Reset()) // every connection is made anew
	}
	w.Moves()
	maps.Copy(w.Settings, usual)
	for range 3 {
		w.SlowerSettingsEnd(w.Replicas()[0])
		f.roll(w, silent)
		w.Moves()
		harness.Lasting(harness.Interval)
	}
	took := time.Since(begun)
	w.heals(time.Now())
	w.Plant("ghost", swept, true)
	harness.Eventually(w, "what is dead is swept", func() bool { return w.unindexed("ghost") })

	each := float64(f.looks.Load()) / float64(len(silent))
	w.remark("%.1f looks at each silent device's entry in %v", each, took.Round(time.Second))
	require.Less(w, each, took.Seconds()/harness.Interval.Seconds()+1, "at most once an interval")
}

// roll lets the oldest replica end, and start again with the settings as they are now. Its silent
// devices come back to it.
func (f *rolling) roll(w *environment, silent map[string]string) {
	old := w.Replicas()[0]
	require.Zero(w, w.Terminate(old), old.Log())
	again := w.Start(old.ID)
	f.counts(again, silent)
	f.hit(1)
	var back []int
	for i := 0; i < w.Fleet.Len(); i += 2 {
		if w.Fleet.At(i) == "" {
			back = append(back, i)
		}
	}
	require.NoError(w, w.Fleet.ConnectAll(w.Context(), back, func(int) *harness.Replica { return again }))
}

// counts counts how often a replica reads the entries of silent devices.
func (f *rolling) counts(r *harness.Replica, silent map[string]string) {
	r.Proxy.Answers(func(r proxy.Request) bool {
		if harness.Named(r) == "lookup" {
			_, args := r.Script()
			for _, imei := range args[4:] {
				if _, is := silent[imei]; is {
					f.looks.Add(1)
				}
			}
		}
		return false
	})
}

// acknowledged: every record that a device was told to be stored is in the stream.
func (w *environment) acknowledged() {
	w.Helper()
	stored := make(map[string]int)
	for _, e := range w.XRange(w.Context(), "telemetry:teltonika", "-", "+").Val() {
		stored[fmt.Sprint(e.Values["imei"])]++
	}
	total := 0
	for imei, n := range w.Fleet.Acknowledged() {
		require.GreaterOrEqual(w, stored[imei], n, "records of %s were acknowledged and are not there", imei)
		total += n
	}
	require.Positive(w, total)
	w.remark("%d records acknowledged, none lost", total)
}

// reasonsOf are those for which the witness has held.
func reasonsOf(v *judge.Verdict) (all []string) {
	for _, d := range v.Holds {
		all = append(all, d.Reason)
	}
	return all
}
