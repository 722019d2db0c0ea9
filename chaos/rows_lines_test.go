package chaos

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// Rows 13 and 14: lines that are poor for a long time, and owners without one.

// poorLines makes everybody's line worse, for several of the lease's TTLs. What a lost packet does to a connection is that it and
// all behind it come one retransmission later.
type poorLines struct {
	calm
	worse       func(l *redisProxy) *proxy.Rule
	began, over time.Time
	rules       []*proxy.Rule
	back        []func()
}

func (f *poorLines) fail(w *world) {
	f.began = time.Now()
	for _, r := range w.fleet() {
		f.back = append(f.back, w.away(r.id))
		f.rules = append(f.rules, f.worse(r.proxy))
	}
	lasting(4 * leaseTTL)
	f.over = time.Now()
}

func (f *poorLines) recover(*world) {
	for i, r := range f.rules {
		f.hit(r.Hits())
		r.End()
		f.back[i]()
	}
}

// stoppedHardlyEver: leaders go on leading. A renewal that comes late is no end, and several have to in a row.
func (w *world) stoppedHardlyEver(v *judge.Verdict) {
	f := w.fault.(*poorLines)
	var terms int
	for _, t := range v.Terms {
		if t.At.After(f.began) && t.At.Before(f.over) {
			terms++
		}
	}
	w.t.Logf("%d step-downs in %v", terms, f.over.Sub(f.began).Round(time.Second))
	require.LessOrEqual(w.t, terms, 3, "a storm of step-downs")
	require.Zero(w.t, v.FalseDeaths)
}

// ownersCut cuts owners off from Redis, all that do not lead, or one, for longer than the heartbeat's TTL. Their devices stay.
type ownersCut struct {
	calm
	one    bool
	owners []*replica
	lines  []*proxy.Rule
	back   []func()
	stayed map[string]string // what was at them all the time
	began  time.Time
	leader *replica
}

func (f *ownersCut) fail(w *world) {
	f.leader = w.leader()
	for _, r := range w.fleet() {
		if r != f.leader && (!f.one || len(f.owners) == 0) {
			f.owners = append(f.owners, r)
		}
	}
	f.began = time.Now()
	for _, r := range f.owners {
		f.back = append(f.back, w.cut(r))
		f.lines = append(f.lines, r.proxy.Hold())
	}
	if f.one {
		eventually(w.t, "its entries are evicted", func() bool { return w.evictedOf(f.owners[0].id) > 0 })
		lasting(interval) // of the rest of them
		return
	}
	eventually(w.t, "the brake is pulled", func() bool {
		return w.HGet(w.t.Context(), w.Witness(), "brake").Val() != ""
	})
	lasting(interval)
}

// evictedOf is how many entries of an owner have gone so far.
func (w *world) evictedOf(owner string) (n int) {
	for _, record := range w.XRange(w.t.Context(), w.Audit(), "-", "+").Val() {
		if record.Values["owner"] == owner && record.Values["count"] != "0" {
			n++
		}
	}
	return n
}

// recover gives the lines back, and waits until what was held all the time is routable again: within one heartbeat
// interval of Redis answering (L2).
func (f *ownersCut) recover(w *world) {
	f.stayed = w.truth()
	maps.DeleteFunc(f.stayed, func(_, id string) bool {
		return !slices.ContainsFunc(f.owners, func(r *replica) bool { return r.id == id })
	})
	for i, l := range f.lines {
		f.hit(l.Hits())
		l.End()
		f.back[i]()
	}
	mended := time.Now()
	eventually(w.t, "what was cut off is routable again", func() bool {
		entries := w.HGetAll(w.t.Context(), w.Registry()).Val()
		now := w.truth()
		for imei, id := range f.stayed {
			if now[imei] == id && entries[imei] != id {
				return false
			}
		}
		return true
	})
	w.within("routable after the lines were mended", time.Since(mended), interval)
}

// braked: the leader did not believe that everybody else had died. Whoever's heartbeat expired first may have been one of three
// that dies, and is swept without delay; the second is one too many.
func (w *world) braked(v *judge.Verdict) {
	f := w.fault.(*ownersCut)
	swept := make(map[string]bool)
	for _, b := range v.Batches {
		if len(b.IMEIs) > 0 {
			swept[b.Owner] = true
		}
	}
	w.t.Logf("swept before the brake: %v", slices.Collect(maps.Keys(swept)))
	require.LessOrEqual(w.t, len(swept), 1, "everybody who was cut off was swept")
	require.NotContains(w.t, swept, f.leader.id)
	ms, known := brakedAt(w, v)
	require.True(w.t, known, "the brake was not pulled")
	for _, b := range v.Batches {
		require.False(w.t, b.At.After(ms) && b.At.Before(ms.Add(warm)), "evicted while braked")
	}
}

// brakedAt is when the brake was pulled last.
func brakedAt(w *world, v *judge.Verdict) (at time.Time, known bool) {
	ms, err := strconv.ParseInt(v.Final.Hashes[w.Witness()]["brake"], 10, 64)
	return time.UnixMilli(ms), err == nil
}

// takenForDead: the one owner was taken for dead, which it was not, and has healed; nobody else was.
func (w *world) takenForDead(v *judge.Verdict) {
	f := w.fault.(*ownersCut)
	require.Equal(w.t, v.Evicted(""), v.Evicted(f.owners[0].id), "somebody else's entries were evicted")
	require.Positive(w.t, v.FalseDeaths)
	require.Positive(w.t, v.Healed)
	w.t.Logf("%d false deaths, %d healed, the slowest after %v", v.FalseDeaths, v.Healed, v.SlowestHeal)
}
