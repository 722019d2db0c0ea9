package chaos

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
	"github.com/rollcall-redis/rollcall/internal/guard"
)

// networkRows are what the network between replicas and Redis does to them. All of it is done by
// the proxies: tc and its netem, with which packets proper are lost, need a kernel of one's own.
var networkRows = []row{

	{11, "EvictionsReplyLost", false, 60, smallBatches,
		under(&batchesLost{lose: (*harness.Proxy).LoseReply, times: 5}, (*environment).countedOnce)},
	{11, "EvictionsReplyLostSilently", false, 60, smallBatches,
		under(&batchesLost{lose: (*harness.Proxy).LoseReplySilently, times: 2}, (*environment).countedOnce)},
	{11, "EvictionsRequestLost", false, 60, smallBatches,
		under(&batchesLost{lose: (*harness.Proxy).LoseRequest, times: 5}, (*environment).countedOnce)},
	{11, "EvictionsRequestLostSilently", false, 60, smallBatches,
		under(&batchesLost{lose: (*harness.Proxy).LoseRequestSilently, times: 2},
			(*environment).countedOnce)},

	{12, "LeaderResetInMidScript", false, 60, smallBatches,
		under(&leaderCut{midScript: true, cut: (*harness.Proxy).Refuse},
			(*environment).ledNoLongerThanTrusted)},
	{12, "LeaderHalfOpen", false, 60, smallBatches, under(&leaderCut{cut: (*harness.Proxy).HalfOpen},
		(*environment).ledNoLongerThanTrusted)},
	{12, "LeaderHearsNoReplies", false, 60, smallBatches,
		under(&leaderCut{cut: (*harness.Proxy).LoseReplies}, (*environment).ledNoLongerThanTrusted)},
	{12, "LeaderHearsRepliesTooLate", false, 60, smallBatches,
		under(&leaderCut{cut: (*harness.Proxy).HoldReplies}, (*environment).ledNoLongerThanTrusted)},
	{14, "LeaderCutOff", true, 60, smallBatches,
		under(&leaderCut{midBatch: true, cut: (*harness.Proxy).Hold}, func(w *environment, v *judge.Verdict) {
			w.ledNoLongerThanTrusted(v)
			w.refusedWhatCameLate(v)
		})},

	{13, "LossyNetwork", false, 60, nil,
		under(&poorNetwork{worse: func(l *harness.Proxy) *proxy.Rule { return l.Loss(0.3) }},
			(*environment).stoppedHardlyEver)},
	{13, "SlowNetwork", false, 60, nil,
		under(&poorNetwork{worse: func(l *harness.Proxy) *proxy.Rule { return l.Slow(20_000) }},
			(*environment).stoppedHardlyEver)},

	{14, "OwnersCutOff", false, 60, nil, under(&ownersCut{}, (*environment).doubted)},
	{14, "OneOwnerCutOff", false, 60, nil, under(&ownersCut{one: true}, (*environment).takenForDead)},
}

// smallBatches makes a pass over what these rows plant ask for many.
var smallBatches = map[string]string{"JANITOR_DELETE_BATCH": "50"}

const ghostsOf = 2000

// reapsOnce waits until the leader has evicted something, so that the server knows the guard's
// script, and then gives it more to do.
func (w *environment) reapsOnce() {
	w.Helper()
	before := w.XLen(w.Context(), w.Log()).Val()
	w.Plant("first", 10, true)
	harness.Eventually(w, "a first batch is done", func() bool { return w.XLen(w.Context(), w.Log()).Val() > before })
}

// cut notes that a replica is cut off from Redis, until the returned function is called.
func (w *environment) cut(r *harness.Replica) (back func()) {
	w.Died(r, judge.CutOff)
	return w.Outage(r.ID)
}

// succeeded waits until another than a former leader has opened a term.
func (w *environment) succeeded(former *harness.Replica) {
	w.Helper()
	harness.Eventually(w, "another leads", func() bool {
		last := w.XRevRangeN(w.Context(), w.Log(), "+", "-", 1).Val()
		return len(last) == 1 && last[0].Values["leader"] != former.ID
	})
}

// nextOf is the next request that was kept back.
func nextOf(t harness.Test, caught <-chan proxy.Request) (req proxy.Request) {
	t.Helper()
	select {
	case req = <-caught:
	case <-time.After(harness.Patience):
		require.Fail(t, "nothing was sent that is to be held")
	}
	return req
}

// refusedWhatCameLate: the fence refused the delete that came late, and nothing went by it.
func (w *environment) refusedWhatCameLate(v *judge.Verdict) {
	f := w.fault.(*leaderCut)
	verdicts := f.former.Proxy.Verdicts()
	require.Positive(w, verdicts[string(guard.Fenced)], "the fence refused nothing: %v", verdicts)
	_, args := f.held.Script()
	require.False(w, slices.ContainsFunc(v.Batches, func(b judge.Batch) bool {
		return guard.BatchID{Epoch: b.Epoch, N: b.N}.String() == args[0]
	}), "the delayed batch %s was done", args[0])
	require.Equal(w, ghostsOf, v.Evicted("ghost"), "the next leader has swept all of it")
}

// batchesLost loses what the leader asks the guard for, or what is answered.
type batchesLost struct {
	calm
	lose  func(l *harness.Proxy, match func(proxy.Request) bool, n int) *proxy.Rule
	times int
	lost  []*proxy.Rule
}

func (f *batchesLost) fail(w *environment) {
	w.reapsOnce()
	for _, r := range w.Replicas() { // the leader may change: one that loses everything may resign
		f.lost = append(f.lost, f.lose(r.Proxy, harness.IsBatch, f.times))
	}
	w.Plant("ghost", ghostsOf, true)
	harness.Eventually(w, "batches or answers are lost", func() bool { return f.count() >= f.times })
}

func (f *batchesLost) recover(*environment) {
	for _, r := range f.lost {
		r.End()
	}
	f.hit(f.count())
}

func (f *batchesLost) count() (n int) {
	for _, r := range f.lost {
		n += r.Hits()
	}
	return n
}

// countedOnce: everything that was to go went, once. That log, total and each process' own
// counter say so is C5, and judge has asked.
func (w *environment) countedOnce(v *judge.Verdict) {
	require.Equal(w, ghostsOf, v.Evicted("ghost"))
	seen := make(map[string]bool)
	for _, b := range v.Batches {
		for _, imei := range b.IMEIs {
			require.False(w, b.Owner == "ghost" && seen[imei], "%s went twice", imei)
			seen[imei] = true
		}
	}
	sent := 0
	for _, r := range w.All {
		sent += r.Proxy.Verdicts()[string(guard.Done)]
	}
	w.Logf("%d batches were answered DONE, %d were done", sent, len(v.Batches))
}

// leaderCut breaks the leader's connections until another leads.
type leaderCut struct {
	calm
	cut       func(l *harness.Proxy) *proxy.Rule
	midScript bool // with a batch under way, which lands at once
	midBatch  bool // with a batch under way, which lands when the proxy is mended

	former *harness.Replica
	token  string
	held   proxy.Request
	back   func()
	broken *proxy.Rule
	asked  []saidToLead
}

func (f *leaderCut) fail(w *environment) {
	w.reapsOnce()
	f.former = w.Leader()
	stop := w.askWhetherItLeads(f.former, &f.asked)
	defer stop()
	release := func() {}
	if f.midScript || f.midBatch {
		hold := f.former.Proxy.HoldEach(harness.IsBatch)
		release = hold.End
		w.Plant("ghost", ghostsOf, true)
		f.held = nextOf(w, hold.Caught)
	} else {
		w.Plant("ghost", ghostsOf, true)
		w.InPass(2)
	}
	// not before: on a busy machine the former can lose it and take it again
	f.token = w.lease()
	f.back = w.cut(f.former)
	f.broken = f.cut(f.former.Proxy)
	if f.midScript {
		f.hit(f.former.Proxy.Reset())
	}
	release()
	w.succeeded(f.former)
	harness.Lasting(harness.Interval / 4) // it is asked some more
}

func (f *leaderCut) recover(*environment) {
	f.hit(f.broken.Hits())
	f.broken.End()
	f.back()
}

// saidToLead is an answer of a replica to whether it leads.
type saidToLead struct {
	asked time.Time
	leads bool
}

// askWhetherItLeads asks a replica again and again, until stop is called.
func (w *environment) askWhetherItLeads(r *harness.Replica, said *[]saidToLead) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			begun := time.Now()
			if says, err := r.Metric("janitor_leader"); err == nil {
				*said = append(*said, saidToLead{begun, says == 1})
			}
			<-ticker.C
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

// ledNoLongerThanTrusted: when the lease can have expired, which H says to the millisecond, the
// former leader does not say any more that it leads; and another does soon after.
func (w *environment) ledNoLongerThanTrusted(v *judge.Verdict) {
	f := w.fault.(*leaderCut)
	ends := w.leaseEnded(f.token)
	require.False(w, ends.IsZero(), "the lease of %s is not in H", f.token)
	var led, after int
	var last time.Time
	for _, s := range f.asked {
		if s.leads {
			led, last = led+1, s.asked
			require.True(w, s.asked.Before(ends), "asked %v after its lease had expired, %s said that it leads", s.asked.Sub(ends), f.former.ID)
		} else if s.asked.After(ends) {
			after++
		}
	}
	require.Positive(w, led, "it was never asked while it led")
	require.Positive(w, after, "it was never asked after its lease")
	w.Logf("it last said to lead when asked %v before its lease expired", ends.Sub(last).Round(time.Millisecond))
	w.within("new leader after the lease's end", v.NextLease(ends.Add(-time.Millisecond), f.former.ID).Sub(ends), harness.LeaseRetry)
}

// leaseEnded is when the lease expires by its last extension with that token.
func (w *environment) leaseEnded(token string) (at time.Time) {
	h := w.History()
	held := ""
	for i := range h {
		for _, c := range h[i].Commands {
			if len(c) < 3 || c[1] != w.Lease() || c[0] != "SET" && c[0] != "PEXPIREAT" {
				continue
			}
			if c[0] == "SET" {
				held = c[2]
			}
			if held == token {
				until := c[2]
				if c[0] == "SET" {
					until = history.Option(c[3:], "PXAT")
				}
				ms, err := strconv.ParseInt(until, 10, 64)
				require.NoError(w, err)
				at = time.UnixMilli(ms)
			}
		}
	}
	return at
}

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
	w.Logf("%d step-downs in %v", terms, f.over.Sub(f.began).Round(time.Second))
	require.LessOrEqual(w, terms, 3, "a storm of step-downs")
	require.Zero(w, v.FalseDeaths)
}

// ownersCut cuts owners off from Redis, all that do not lead, or one, for longer than the
// heartbeat's TTL. Their devices stay.
type ownersCut struct {
	calm
	one    bool
	owners []*harness.Replica
	holds  []*proxy.Rule
	back   []func()
	stayed map[string]string // what was at them all the time
	began  time.Time
	leader *harness.Replica
}

func (f *ownersCut) fail(w *environment) {
	f.leader = w.Leader()
	f.owners = w.Others(f.leader)
	if f.one {
		f.owners = f.owners[:1]
	}
	f.began = time.Now()
	for _, r := range f.owners {
		f.back = append(f.back, w.cut(r))
		f.holds = append(f.holds, r.Proxy.Hold())
	}
	if f.one {
		harness.Eventually(w, "its entries are evicted", func() bool { return w.evictedOf(f.owners[0].ID) > 0 })
		harness.Lasting(harness.Interval) // of the rest of them
		return
	}
	harness.Eventually(w, "all of them are silent", func() bool {
		return !slices.ContainsFunc(f.owners, func(r *harness.Replica) bool {
			return w.beats(r.ID)
		})
	})
	harness.Lasting(harness.Interval)
}

// evictedOf is how many entries of an owner have gone so far.
func (w *environment) evictedOf(owner string) (n int) {
	for _, record := range w.XRange(w.Context(), w.Log(), "-", "+").Val() {
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
	for i, l := range f.holds {
		f.hit(l.Hits())
		l.End()
		f.back[i]()
	}
	mended := time.Now()
	harness.Eventually(w, "what was cut off is routable again", func() bool {
		entries := w.entries()
		now := w.Truth()
		for imei, id := range f.stayed {
			if now[imei] == id && entries[imei] != id {
				return false
			}
		}
		return true
	})
	w.within("routable after the proxies were mended", time.Since(mended), harness.Interval)
}

// doubted: the leader did not believe that everybody else had died.
func (w *environment) doubted(v *judge.Verdict) {
	swept := make(map[string]bool)
	for _, b := range v.Batches {
		if len(b.IMEIs) > 0 {
			swept[b.Owner] = true
		}
	}
	require.Empty(w, swept)
}

// takenForDead: the one owner was taken for dead, which it was not, and has healed; nobody else
// was.
func (w *environment) takenForDead(v *judge.Verdict) {
	f := w.fault.(*ownersCut)
	require.Equal(w, v.Evicted(""), v.Evicted(f.owners[0].ID), "somebody else's entries were evicted")
	require.Positive(w, v.FalseDeaths)
	require.Positive(w, v.Healed)
	w.Logf("%d false deaths, %d healed, the slowest after %v", v.FalseDeaths, v.Healed, v.SlowestHeal)
}
