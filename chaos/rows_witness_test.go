package chaos

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// witnessRows are about what a witness that compares one counter does not notice: Redis evicts the
// heartbeat of an owner that lives, and then something keeps the count from telling it.
var witnessRows = []row{
	{32, "EvictedThenRestarted", true, 60, longLease, under(&evictedUnseen{then: restarted},
		heldFor("restarted", "gap"))},
	{32, "EvictedThenPromoted", false, 60, longLease, under(&evictedUnseen{then: promoted, spare: true},
		heldFor("restarted", "gap"))},
	{32, "EvictedThenStatisticsReset", false, 60, longLease,
		under(&evictedUnseen{then: statisticsReset}, heldFor("restarted", "gap"))},
}

// heldFor: nobody who lives was evicted, and the witness has held since the fault began, for one
// of these reasons.
func heldFor(reasons ...string) func(w *environment, v *judge.Verdict) {
	return func(w *environment, v *judge.Verdict) {
		nothingWent(w, v)
		w.held(v, reasons...)
	}
}

// held fails if the witness has not held since the fault began, for one of these reasons.
func (w *environment) held(v *judge.Verdict, reasons ...string) {
	w.Helper()
	// The witness notes a hold to the millisecond.
	begun := w.fault.(interface{ begun() time.Time }).begun().Truncate(time.Millisecond)
	require.True(w, slices.ContainsFunc(v.Holds, func(d judge.Hold) bool {
		return !d.At.Before(begun) && slices.Contains(reasons, d.Reason)
	}), "held for none of %v: %v", reasons, v.Holds)
}

// evictor is the part of faults in which Redis evicts heartbeats.
type evictor struct {
	calm
	from time.Time
}

func (e *evictor) begun() time.Time { return e.from }

func (*evictor) setup(w *environment) {
	w.Serve(append(history.AppendOnly(), "--maxmemory-policy", "volatile-ttl", "--maxmemory-samples", "64")...)
}

// mute cuts an owner off until speaks is called. It returns when its heartbeat will end before
// those of the running replicas, and of others. That is long before its time is over, which alive
// tells.
func (w *environment) mute(id string, l *harness.Proxy, others ...string) (alive func() bool, speaks func()) {
	ctx := w.Context()
	back, rule := w.Outage(id), l.Hold()
	left := func() time.Duration { return w.PTTL(ctx, w.Heartbeat(id)).Val() }
	harness.Eventually(w, "everybody else has beaten since", func() bool {
		return !slices.ContainsFunc(w.Alive(others), func(other string) bool {
			return other != id && w.PTTL(ctx, w.Heartbeat(other)).Val() < left()+200*time.Millisecond
		})
	})
	until := time.Now().Add(left())
	return func() bool { return time.Now().Before(until.Add(-harness.TTL / 20)) }, func() {
		rule.End()
		back()
	}
}

// evict has Redis evict the heartbeat of an owner, if it has not ended by itself, and then ballast
// that has hardly more time left, by which memory is short. The server evicts first what has the
// least time left.
func (w *environment) evict(id string) bool {
	w.Helper()
	const room = 16 << 10
	ctx, key, before := w.Context(), w.Heartbeat(id), w.evictedKeys()
	left := w.PTTL(ctx, key).Val()
	if left <= 0 {
		return false
	}
	require.NoError(w, w.Set(ctx, "ballast", strings.Repeat("b", 16*room), left+100*time.Millisecond).Err())
	harness.Eventually(w, "Redis evicts the heartbeat of "+id, func() bool {
		w.config("maxmemory", w.used(-room))
		return w.Exists(ctx, key).Val() == 0
	})
	w.config("maxmemory", "0")
	return w.evictedKeys() > before
}

// evictedKeys is the server's own count.
func (w *environment) evictedKeys() (n int) {
	w.Helper()
	n, err := strconv.Atoi(harness.InfoOf(w, w.Client, "Stats", "evicted_keys"))
	require.NoError(w, err)
	return n
}

// goes waits until entries of an owner go, or its heartbeat would have ended by now, evicted or
// not.
func (w *environment) goes(owner *harness.Replica, alive func() bool) {
	held := len(w.entriesOf(owner.ID))
	for alive() && len(w.entriesOf(owner.ID)) > held/2 {
		harness.Lasting(harness.PatiencePause)
	}
}

// entriesOf are the entries that name an instance.
func (w *environment) entriesOf(id string) (imeis []string) {
	for imei, owner := range w.entries() {
		if owner == id {
			imeis = append(imeis, imei)
		}
	}
	return imeis
}

// lastTick is when the witness last ticked.
func (w *environment) lastTick() time.Time {
	ms, err := w.HGet(w.Context(), w.Witness(), "last").Int64()
	require.NoError(w, err)
	return time.UnixMilli(ms)
}

// evictedUnseen: before anybody ticks again, the count of evicted keys is what it was before.
type evictedUnseen struct {
	evictor
	then  func(w *environment, f *evictedUnseen)
	spare bool // there is a replica of Redis
	failover
}

func (f *evictedUnseen) begun() time.Time { return f.evictor.from }
func (f *evictedUnseen) hits() int        { return f.evictor.hits() }

func (f *evictedUnseen) recover(*environment) {}

func (f *evictedUnseen) setup(w *environment) {
	f.evictor.setup(w)
	if f.spare {
		f.failover.setup(w)
	}
}

func (f *evictedUnseen) fail(w *environment) {
	// on a busy machine it may take longer than the GAP
	for round := 0; round < 5 && f.hits() == 0; round++ {
		owner := w.Follower()
		f.evictor.from = time.Now()
		alive, speaks := w.mute(owner.ID, owner.Proxy)
		release := harness.HoldAll(harness.ProxiesOf(w.Others(owner)))
		last := w.lastTick()
		require.True(w, w.evict(owner.ID), "its heartbeat has ended by itself: this run proves nothing")
		f.then(w, f)
		release()
		harness.Eventually(w, "somebody ticks", func() bool { return w.lastTick().After(last) })
		gap := w.lastTick().Sub(last)
		w.remark("evicted and forgotten between two ticks %v apart", gap.Round(time.Millisecond))
		if gap < (harness.TTL-harness.Interval)/2 {
			f.evictor.hit(1)
		}
		w.goes(owner, alive)
		speaks()
		w.heals(time.Now())
		if f.hits() == 0 {
			w.listens(time.Now())
		}
	}
}

// restarted: Redis is killed and loads its file. All is as it was, and it has evicted nothing.
func restarted(w *environment, _ *evictedUnseen) { w.CountersBeginAnew(w.Server.Restart) }

// promoted: a replica that lacks nothing takes its place. It has never evicted anything.
func promoted(w *environment, f *evictedUnseen) {
	c := f.replica.Client()
	harness.Eventually(w, "the replica has all of it", func() bool {
		return harness.InfoOf(w, c, "Replication", "master_repl_offset") == harness.InfoOf(w, w.Client, "Replication", "master_repl_offset")
	})
	f.promote(w)
}

// statisticsReset: an operator has Redis count from 0.
func statisticsReset(w *environment, _ *evictedUnseen) {
	w.CountersBeginAnew(func() { require.NoError(w, w.ConfigResetStat(w.Context()).Err()) })
}

// acl changes a user of Redis.
func (w *environment) acl(user string, rules ...any) *redis.Cmd {
	return w.Do(w.Context(), append([]any{"ACL", "SETUSER", user}, rules...)...)
}

// The slow one's settings.
const (
	slowInterval = 2 * harness.Interval
	slowTTL      = 3 * harness.TTL
)

// failoverRows: a replica of Redis is promoted that does not have everything. Done by hand, as
// Sentinel or an operator does it; the address changes hands behind the proxies.
var failoverRows = []row{
	{27, "FailoverThatLostSeconds", true, 60, nil, under(&failover{behind: harness.Interval}, lostAndBack)},
	{27, "FailoverThatLostLeaseAndHeartbeats", false, 60, nil,
		under(&failover{behind: harness.TTL + harness.Interval}, lostAndBack)},
}

// failover cuts the link of a primary to its replica, and later promotes the replica.
type failover struct {
	calm
	behind  time.Duration // for how long the primary goes on alone
	link    *harness.Proxy
	replica *redistest.Server
}

func (f *failover) setup(w *environment) {
	f.link = harness.NewProxy(w.T, w.Server.Addr())
	host, port, err := net.SplitHostPort(f.link.Addr())
	require.NoError(w, err)
	f.replica = redistest.Start(w.T, "--replicaof", host+" "+port, "--notify-keyspace-events", "K$g")
	c := f.replica.Client()
	harness.Eventually(w, "the replica follows", func() bool { return harness.InfoOf(w, c, "Replication", "master_link_status") == "up" })
}

func (f *failover) fail(w *environment) {
	f.link.Hold()
	f.behindBy(w)
	release := harness.HoldAll(w.Proxies)
	back := w.Outage("")
	epoch := w.Get(w.Context(), history.EpochKey(w.Lease())).Val()
	had := w.entries()

	f.promote(w)
	lost := 0
	for imei, owner := range w.entries() {
		if had[imei] != owner {
			lost++
		}
	}
	w.remark("the promoted one is %v behind: %d entries differ, epoch %s, was %s", f.behind, lost, w.Get(w.Context(), history.EpochKey(w.Lease())).Val(), epoch)
	f.hit(lost)
	release()
	back()
}

// promote makes the replica the primary. The old one is dead for good: what the proxies hold back
// would land there, beside the history that goes on elsewhere.
func (f *failover) promote(w *environment) {
	c := f.replica.Client()
	w.CountersBeginAnew(func() {
		w.Server.Kill()
		require.NoError(w, c.ReplicaOf(w.Context(), "NO", "ONE").Err())
	})
	w.NextLife(f.replica)
	w.Client = c
	for _, p := range w.Proxies {
		p.Retarget(f.replica.Addr())
	}
}

// behindBy lets the primary go on alone, and a new term begin in that time, so that its epoch is
// lost too.
func (f *failover) behindBy(w *environment) {
	begun := time.Now()
	cont := w.Stop(w.Leader())
	former := w.Holder()
	harness.Eventually(w, "a successor leads", func() bool { h := w.Holder(); return h != "" && h != former })
	cont()
	if left := f.behind - time.Since(begun); left > 0 {
		harness.Lasting(left)
	}
}

func (f *failover) recover(w *environment) {
	w.OneLeads()
}

// lostAndBack: what the promoted one lacks is put back by who holds it, and no epoch is drawn
// again.
func lostAndBack(w *environment, v *judge.Verdict) {
	for i := 1; i < len(v.Terms); i++ {
		require.Greater(w, v.Terms[i].Epoch, v.Terms[i-1].Epoch)
	}
	drawn, err := strconv.ParseUint(w.Get(w.Context(), history.EpochKey(w.Lease())).Val(), 10, 64)
	require.NoError(w, err)
	require.GreaterOrEqual(w, drawn, v.Terms[len(v.Terms)-1].Epoch)
}
