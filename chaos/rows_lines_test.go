package chaos

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// Rows 13 and 14: networks that are poor for a long time, and owners without one.

// poorNetwork makes everybody's network worse, for several of the lease's TTLs. What a lost packet
// does to a connection is that it and all behind it come one retransmission later.
type poorNetwork struct {
	calm
	worse       func(l *harness.Proxy) *proxy.Rule
	began, over time.Time
	rules       []*proxy.Rule
	back        []func()
}

func (f *poorNetwork) fail(w *environment) {
	f.began = time.Now()
	for _, r := range w.Replicas() {
		f.back = append(f.back, w.Outage(r.ID))
		f.rules = append(f.rules, f.worse(r.Proxy))
	}
	harness.Lasting(4 * harness.LeaseTTL)
	f.over = time.Now()
}

func (f *poorNetwork) recover(*environment) {
	for i, r := range f.rules {
		f.hit(r.Hits())
		r.End()
		f.back[i]()
	}
}

// stoppedHardlyEver: leaders go on leading. A renewal that comes late is no end, and several have
// to in a row.
func (w *environment) stoppedHardlyEver(v *judge.Verdict) {
	f := w.fault.(*poorNetwork)
	var terms int
	for _, t := range v.Terms {
		if t.At.After(f.began) && t.At.Before(f.over) {
			terms++
		}
	}
	w.T.Logf("%d step-downs in %v", terms, f.over.Sub(f.began).Round(time.Second))
	require.LessOrEqual(w.T, terms, 3, "a storm of step-downs")
	require.Zero(w.T, v.FalseDeaths)
}

// ownersCut cuts owners off from Redis, all that do not lead, or one, for longer than the
// heartbeat's TTL. Their devices stay.
type ownersCut struct {
	calm
	one    bool
	owners []*harness.Replica
	lines  []*proxy.Rule
	back   []func()
	stayed map[string]string // what was at them all the time
	began  time.Time
	leader *harness.Replica
}

func (f *ownersCut) fail(w *environment) {
	f.leader = w.Leader()
	for _, r := range w.Replicas() {
		if r != f.leader && (!f.one || len(f.owners) == 0) {
			f.owners = append(f.owners, r)
		}
	}
	f.began = time.Now()
	for _, r := range f.owners {
		f.back = append(f.back, w.cut(r))
		f.lines = append(f.lines, r.Proxy.Hold())
	}
	if f.one {
		harness.Eventually(w.T, "its entries are evicted", func() bool { return w.evictedOf(f.owners[0].ID) > 0 })
		harness.Lasting(harness.Interval) // of the rest of them
		return
	}
	harness.Eventually(w.T, "the brake is pulled", func() bool {
		return w.HGet(w.T.Context(), w.Witness(), "brake").Val() != ""
	})
	harness.Lasting(harness.Interval)
}

// evictedOf is how many entries of an owner have gone so far.
func (w *environment) evictedOf(owner string) (n int) {
	for _, record := range w.XRange(w.T.Context(), w.Audit(), "-", "+").Val() {
		if record.Values["owner"] == owner && record.Values["count"] != "0" {
			n++
		}
	}
	return n
}

// recover gives the proxies back, and waits until what was held all the time is routable again:
// within one heartbeat interval of Redis answering (L2).
func (f *ownersCut) recover(w *environment) {
	f.stayed = w.Truth()
	maps.DeleteFunc(f.stayed, func(_, id string) bool {
		return !slices.ContainsFunc(f.owners, func(r *harness.Replica) bool { return r.ID == id })
	})
	for i, l := range f.lines {
		f.hit(l.Hits())
		l.End()
		f.back[i]()
	}
	mended := time.Now()
	harness.Eventually(w.T, "what was cut off is routable again", func() bool {
		entries := w.HGetAll(w.T.Context(), w.Registry()).Val()
		now := w.Truth()
		for imei, id := range f.stayed {
			if now[imei] == id && entries[imei] != id {
				return false
			}
		}
		return true
	})
	w.within("routable after the lines were mended", time.Since(mended), harness.Interval)
}

// braked: the leader did not believe that everybody else had died. Whoever's heartbeat expired
// first may have been one of three that dies, and is swept without delay; the second is one too
// many.
func (w *environment) braked(v *judge.Verdict) {
	f := w.fault.(*ownersCut)
	swept := make(map[string]bool)
	for _, b := range v.Batches {
		if len(b.IMEIs) > 0 {
			swept[b.Owner] = true
		}
	}
	w.T.Logf("swept before the brake: %v", slices.Collect(maps.Keys(swept)))
	require.LessOrEqual(w.T, len(swept), 1, "everybody who was cut off was swept")
	require.NotContains(w.T, swept, f.leader.ID)
	ms, known := brakedAt(w, v)
	require.True(w.T, known, "the brake was not pulled")
	for _, b := range v.Batches {
		require.False(w.T, b.At.After(ms) && b.At.Before(ms.Add(harness.GracePeriod)), "evicted while braked")
	}
}

// brakedAt is when the brake was pulled last.
func brakedAt(w *environment, v *judge.Verdict) (at time.Time, known bool) {
	ms, err := strconv.ParseInt(v.Final.Hashes[w.Witness()]["brake"], 10, 64)
	return time.UnixMilli(ms), err == nil
}

// takenForDead: the one owner was taken for dead, which it was not, and has healed; nobody else
// was.
func (w *environment) takenForDead(v *judge.Verdict) {
	f := w.fault.(*ownersCut)
	require.Equal(w.T, v.Evicted(""), v.Evicted(f.owners[0].ID), "somebody else's entries were evicted")
	require.Positive(w.T, v.FalseDeaths)
	require.Positive(w.T, v.Healed)
	w.T.Logf("%d false deaths, %d healed, the slowest after %v", v.FalseDeaths, v.Healed, v.SlowestHeal)
}
