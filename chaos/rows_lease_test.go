package chaos

import (
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// leaseRows: what is agreed in Redis is not as it should be: a lease that never ends, settings that
// differ.
var leaseRows = []row{
	{26, "LeaseOfNobodyWithoutExpiry", false, 60, nil, under(&endless{how: ofNobody}, nothingWent)},
	{26, "LeaseLosesItsExpiry", false, 60, nil, under(&endless{how: persisted}, nothingWent)},
	{26, "MixedSettings", false, 60, nil, under(&mixed{}, heldWhileMixed)},
}

// endless is a lease without an expiry, whose holder does not renew it. Contenders watch it for a
// lease TTL and give it one.
type endless struct {
	calm
	how func(w *environment) (over func())
}

func (f *endless) fail(w *environment) {
	over := f.how(w)
	begun := time.Now()
	token := w.Get(w.T.Context(), w.Lease()).Val()
	require.Equal(w.T, time.Duration(-1), w.PTTL(w.T.Context(), w.Lease()).Val())
	f.hit(1)
	harness.Eventually(w.T, "the lease is taken by another", func() bool {
		now := w.Get(w.T.Context(), w.Lease()).Val()
		return now != "" && now != token
	})
	w.within("a leader after the lease lost its end", time.Since(begun), 2*harness.LeaseTTL+2*harness.LeaseRetry)
	over()
	w.OneLeads()
}

func ofNobody(w *environment) (over func()) {
	w.Meddle("somebody takes the lease for ever", func(p redis.Pipeliner) { p.Set(w.T.Context(), w.Lease(), "somebody/x", 0) })
	return func() {}
}

// persisted takes the expiry away while the leader cannot renew.
func persisted(w *environment) (over func()) {
	r := w.Leader().Proxy.AnswerWith(harness.IsLeaseCall, "TRYAGAIN later", -1)
	harness.Eventually(w.T, "a renewal is due", func() bool { return r.Hits() > 0 })
	w.Meddle("the lease loses its expiry", func(p redis.Pipeliner) { p.Persist(w.T.Context(), w.Lease()) })
	return r.End
}

// mixed runs a replica with another TTL among the others for a while: how long silence must last to
// be believed is not agreed.
type mixed struct {
	calm
	from, until time.Time
}

func (f *mixed) fail(w *environment) {
	usual := w.Settings["HEARTBEAT_TTL"]
	w.Settings["HEARTBEAT_TTL"] = (2 * harness.TTL).String()
	odd := w.Start("odd")
	w.Settings["HEARTBEAT_TTL"] = usual
	w.raised("settings")
	w.SlowerSettings(odd, harness.Interval, 2*harness.TTL)
	f.from = time.Now()
	w.Plant("ghost", swept, true)
	w.Beats(2)
	f.until = time.Now()
	f.hit(1)

	require.Zero(w.T, w.Terminate(odd), odd.Log())
	w.SlowerSettingsEnd(odd)
}

func heldWhileMixed(w *environment, v *judge.Verdict) {
	allSwept(w, v)
	f := w.fault.(*mixed)
	require.Equal(w.T, "settings", v.Final.Hashes[w.Witness()]["reason"])
	for _, b := range v.Batches {
		require.False(w.T, b.At.After(f.from) && b.At.Before(f.until), "swept while settings differ")
	}
}

// termsRows are about terms that follow each other, quickly or after a time without any.
var termsRows = []row{
	{7, "AllKilledAndRestartedAtOnce", false, 60, slowSweep, under(&allKilled{}, listenedOn)},
	{7, "AllKilledAndRestartedPastTheGap", false, 60, slowSweep,
		under(&allKilled{away: gap * 3 / 2}, listenedAnew)},
	{8, "ManyTerms", false, 60, slowSweep, manyTerms},
}

// gap is the longest silence that is no hold.
const gap = (harness.TTL - harness.Interval) / 2

// allKilled kills everybody at one instant; new lives of the same ids follow. At once: they have
// been started before, and wait behind proxies that are held.
type allKilled struct {
	calm
	away              time.Duration
	died, back, ready time.Time
}

func (f *allKilled) fail(w *environment) {
	haunts(w)
	w.InPass(2)
	former := w.Replicas()
	if f.away > 0 {
		f.kill(w, former)
		harness.Lasting(f.away)
		f.back = time.Now()
	}
	var (
		next  []*harness.Replica
		holds []*proxy.Rule
	)
	for _, r := range former {
		way := harness.NewProxy(w.T, w.Server.Addr())
		if f.away == 0 {
			holds = append(holds, way.Hold())
		}
		next = append(next, w.Launch(way, r.ID))
	}
	if f.away == 0 {
		for _, r := range next {
			harness.Eventually(w.T, r.ID+" is up", func() bool { return r.Said("listening for devices", "addr") != "" })
		}
		f.kill(w, former)
		f.back = time.Now()
		for _, h := range holds {
			h.End()
		}
	}
	for _, r := range next {
		r.Ready()
		w.Runs(r)
	}
	f.ready = time.Now()
	w.Leader()
}

func (f *allKilled) kill(w *environment, all []*harness.Replica) {
	back := w.Outage("")
	defer back()
	w.Gate.Lock()
	for _, r := range all {
		w.Fleet.Losing(r)
	}
	f.died = time.Now()
	for _, r := range all {
		r.Kill()
		f.hit(1)
	}
	for _, r := range all {
		w.Gone(r)
		w.Fleet.LostAt(r)
	}
	w.Gate.Unlock()
}

// silence is the longest time between two ticks of the witness since an instant, as the server
// counts.
func (w *environment) silence(since time.Time) (longest time.Duration) {
	w.T.Helper()
	h := w.History()
	var last time.Time
	for _, e := range h {
		for _, c := range e.Commands {
			if len(c) < 4 || c[0] != "HSET" || c[1] != w.Witness() {
				continue
			}
			ms, err := strconv.ParseInt(history.Option(c[2:], "last"), 10, 64)
			if err != nil {
				continue
			}
			at := time.UnixMilli(ms)
			if at.After(since) && !last.IsZero() {
				longest = max(longest, at.Sub(last))
			}
			last = at
		}
	}
	return longest
}

// listenedOn: somebody was always listening, so that nothing is held and the sweep goes on under
// the next leader.
func listenedOn(w *environment, v *judge.Verdict) {
	f := w.fault.(*allKilled)
	silence := w.silence(f.died)
	w.T.Logf("%v without a tick, %v until a new leader", silence, v.NextLease(f.died, "").Sub(f.died))
	w.within("new leader", v.NextLease(f.died, "").Sub(f.died), harness.LeaseTTL+harness.LeaseRetry)
	require.Equal(w.T, len(w.Ghosts), v.Evicted("ghost"))
	if silence > gap {
		w.T.Log("this machine was too slow for a silence below GAP: what follows is another row's")
		return
	}
	require.True(w.T, v.LastHold().Before(f.died), "held without a reason")
}

// listenedAnew: nothing is swept until GRACE has passed.
func listenedAnew(w *environment, v *judge.Verdict) {
	f := w.fault.(*allKilled)
	w.within("new leader, after they were up", v.NextLease(f.back, "").Sub(f.ready), harness.LeaseRetry)
	require.True(w.T, v.LastHold().After(f.died), "not held")
	for _, b := range v.Batches {
		if b.At.After(f.back) {
			require.GreaterOrEqual(w.T, b.At.Sub(f.back), harness.GracePeriod-time.Millisecond)
		}
	}
	require.Equal(w.T, len(w.Ghosts), v.Evicted("ghost"))
}

// Terms end as fast as they can, from the very beginning: leaders resign, and leases are taken
// away. Epochs rise (C4). Nothing is swept before GRACE is over, however many terms it lasts (C4),
// and once it is they sweep, though none of them has listened for so long.
func manyTerms(w *environment) {
	const terms, sweeping = 30, 5
	fault := &calm{}
	w.fault = fault
	haunts(w)
	w.Start("one", "two", "three")
	w.Spread(harness.Some(0, w.Fleet.Len()))
	w.Registered(len(w.Ghosts))
	w.Traffic.Start(w.Environment)
	w.Moves()
	begun := time.Now()
	swept := make(map[uint64]bool) // terms that have
	for fault.hits() < terms || len(swept) < sweeping {
		before, _ := w.term()
		if fault.hits()%4 < 3 {
			if !w.resigns(w.Leader()) {
				continue
			}
		} else {
			w.Meddle("lease", func(p redis.Pipeliner) { p.Del(w.T.Context(), w.Lease()) })
		}
		fault.hit(1)
		harness.Eventually(w.T, "another term begins", func() bool {
			epoch, _ := w.term()
			return epoch > before
		})
		if !w.listened() || len(swept) >= sweeping {
			continue
		}
		if w.HLen(w.T.Context(), w.Registry()).Val() < ghosts/2 {
			haunts(w)
		}
		harness.Eventually(w.T, "a term sweeps", func() bool {
			epoch, batches := w.term()
			if batches > 0 {
				swept[epoch] = true
			}
			return batches > 0
		})
	}
	took := time.Since(begun)
	w.ends()
	v := w.judge()
	w.T.Logf("%d terms in %v: %.0f a minute", len(v.Terms), took.Round(time.Millisecond), float64(len(v.Terms))/took.Minutes())
	require.GreaterOrEqual(w.T, len(v.Terms), terms)
	require.Equal(w.T, len(w.Ghosts), v.Evicted("ghost"))
	require.GreaterOrEqual(w.T, w.Traffic.Done(), w.Fleet.Len()/2, "too little traffic: this run proves nothing")
}

// listened tells whether the witness has listened for GRACE.
func (w *environment) listened() bool {
	w.T.Helper()
	fields, err := w.HMGet(w.T.Context(), w.Witness(), "since", "hold").Result()
	require.NoError(w.T, err)
	var since int64
	for _, f := range fields {
		if text, ok := f.(string); ok {
			ms, err := strconv.ParseInt(text, 10, 64)
			require.NoError(w.T, err)
			since = max(since, ms)
		}
	}
	return since > 0 && time.Since(time.UnixMilli(since)) > harness.GracePeriod
}
