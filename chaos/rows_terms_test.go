package chaos

import (
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// termsRows are about terms that follow each other, quickly or after a time without any.
var termsRows = []row{
	{7, "AllKilledAndRestartedAtOnce", false, 60, slowPass, under(func() fault { return &allKilled{} }, listenedOn)},
	{7, "AllKilledAndRestartedPastTheGap", false, 60, slowPass, under(func() fault { return &allKilled{away: gap * 3 / 2} }, listenedAnew)},
	{8, "ManyTerms", false, 60, slowPass, manyTerms},
}

// gap is the longest silence that is no doubt.
const gap = (ttl - interval) / 2

// allKilled kills everybody at one instant; new lives of the same ids follow. At once: they have been started before, and wait
// behind lines that are held.
type allKilled struct {
	calm
	away              time.Duration
	died, back, ready time.Time
}

func (f *allKilled) fail(w *world) {
	haunts(w)
	w.inPass(2)
	former := w.fleet()
	if f.away > 0 {
		f.kill(w, former)
		lasting(f.away)
		f.back = time.Now()
	}
	var (
		next  []*replica
		lines []*proxy.Rule
	)
	for _, r := range former {
		line := newProxy(w.t, w.server.Addr())
		if f.away == 0 {
			lines = append(lines, line.Hold())
		}
		next = append(next, w.launchBehind(line, r.id))
	}
	if f.away == 0 {
		for _, r := range next {
			eventually(w.t, r.id+" is up", func() bool { return r.Said("listening for devices", "addr") != "" })
		}
		f.kill(w, former)
		f.back = time.Now()
		for _, line := range lines {
			line.End()
		}
	}
	for _, r := range next {
		r.ready()
		w.running(r)
	}
	f.ready = time.Now()
	w.leader()
}

func (f *allKilled) kill(w *world, all []*replica) {
	back := w.away("")
	defer back()
	w.gate.Lock()
	for _, r := range all {
		w.devices.losing(r)
	}
	f.died = time.Now()
	for _, r := range all {
		r.Kill()
		f.hit(1)
	}
	for _, r := range all {
		w.gone(r)
		w.devices.lost(r)
	}
	w.gate.Unlock()
}

// silence is the longest time between two ticks of the witness since an instant, as the server counts.
func (w *world) silence(since time.Time) (longest time.Duration) {
	w.t.Helper()
	h, err := history.Read(w.parts...)
	require.NoError(w.t, err)
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

// listenedOn: somebody was always listening, so that nothing is doubted and the sweep goes on under the next leader.
func listenedOn(w *world, v *judge.Verdict) {
	f := w.fault.(*allKilled)
	silence := w.silence(f.died)
	w.t.Logf("%v without a tick, %v until a new leader", silence, v.NextLease(f.died, "").Sub(f.died))
	w.within("new leader", v.NextLease(f.died, "").Sub(f.died), leaseTTL+leaseRetry)
	require.Equal(w.t, len(w.ghosts), v.Evicted("ghost"))
	if silence > gap {
		w.t.Log("this machine was too slow for a silence below GAP: what follows is another row's")
		return
	}
	require.True(w.t, v.LastDoubt().Before(f.died), "doubted without a reason")
}

// listenedAnew: nothing is swept until WARM has passed.
func listenedAnew(w *world, v *judge.Verdict) {
	f := w.fault.(*allKilled)
	w.within("new leader, after they were up", v.NextLease(f.back, "").Sub(f.ready), leaseRetry)
	require.True(w.t, v.LastDoubt().After(f.died), "not doubted")
	for _, b := range v.Batches {
		if b.At.After(f.back) {
			require.GreaterOrEqual(w.t, b.At.Sub(f.back), warm-time.Millisecond)
		}
	}
	require.Equal(w.t, len(w.ghosts), v.Evicted("ghost"))
}

// Terms end as fast as they can, from the very beginning: leaders resign, and leases are taken away. Epochs rise (C4). Nothing is
// swept before WARM is over, however many terms it lasts (C4), and once it is they sweep, though none of them has listened for
// so long.
func manyTerms(w *world) {
	const terms, sweeping = 30, 5
	fault := &calm{}
	w.fault = fault
	haunts(w)
	for _, id := range []string{"one", "two", "three"} {
		w.start(id)
	}
	w.spread(some(0, w.devices.Len()))
	w.registered(len(w.ghosts))
	w.traffic.start(w.base)
	w.moves()
	begun := time.Now()
	swept := make(map[uint64]bool) // terms that have
	for fault.hits() < terms || len(swept) < sweeping {
		before, _ := w.term()
		if fault.hits()%4 < 3 {
			if !w.resigns(w.leader()) {
				continue
			}
		} else {
			w.meddle("lease", func(p redis.Pipeliner) { p.Del(w.t.Context(), w.Lease()) })
		}
		fault.hit(1)
		eventually(w.t, "another term begins", func() bool {
			epoch, _ := w.term()
			return epoch > before
		})
		if !w.warmed() || len(swept) >= sweeping {
			continue
		}
		if w.HLen(w.t.Context(), w.Registry()).Val() < ghosts/2 {
			haunts(w)
		}
		eventually(w.t, "a term sweeps", func() bool {
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
	w.t.Logf("%d terms in %v: %.0f a minute", len(v.Terms), took.Round(time.Millisecond), float64(len(v.Terms))/took.Minutes())
	require.GreaterOrEqual(w.t, len(v.Terms), terms)
	require.Equal(w.t, len(w.ghosts), v.Evicted("ghost"))
	require.GreaterOrEqual(w.t, w.traffic.done(), w.devices.Len()/2, "too little traffic: this run proves nothing")
}

// warmed tells whether the witness has listened for WARM.
func (w *world) warmed() bool {
	w.t.Helper()
	fields, err := w.HMGet(w.t.Context(), w.Witness(), "since", "doubt").Result()
	require.NoError(w.t, err)
	var since int64
	for _, f := range fields {
		if text, ok := f.(string); ok {
			ms, err := strconv.ParseInt(text, 10, 64)
			require.NoError(w.t, err)
			since = max(since, ms)
		}
	}
	return since > 0 && time.Since(time.UnixMilli(since)) > warm
}
