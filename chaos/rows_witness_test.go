package chaos

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// witnessRows are about what the witness must know of the server and of the fleet, and what a witness that compares one counter
// does not notice: Redis evicts the heartbeat of an owner that lives, and then something keeps the count from telling it.
var witnessRows = []row{
	{32, "EvictedThenRestarted", true, 60, longLease, under(func() fault { return &evictedUnseen{then: restarted} }, heldFor("restarted", "redis_evicting", "gap"))},
	{32, "EvictedThenPromoted", false, 60, longLease, under(func() fault { return &evictedUnseen{then: promoted, spare: true} }, heldFor("restarted", "redis_evicting", "gap"))},
	{32, "EvictedThenStatisticsReset", false, 60, longLease, under(func() fault { return &evictedUnseen{then: statisticsReset} }, heldFor("restarted", "redis_evicting", "gap"))},
	{33, "ContenderWithoutInfo", false, 60, longLease, under(func() fault { return &withoutInfo{} }, heldFor("redis_evicting"))},
	{33, "SettingsOfTheSlow", false, 60, longLease, under(func() fault { return &slowAmongQuick{} }, heldFor("settings", "redis_evicting"))},
}

// heldFor: nobody who lives was evicted, and the witness has doubted since the fault began, for one of these reasons.
func heldFor(reasons ...string) func(w *world, v *judge.Verdict) {
	return func(w *world, v *judge.Verdict) {
		nothingWent(w, v)
		begun := w.fault.(interface{ begun() time.Time }).begun()
		require.True(w.t, slices.ContainsFunc(v.Doubts, func(d judge.Doubt) bool {
			return !d.At.Before(begun) && slices.Contains(reasons, d.Reason)
		}), "held for none of %v: %v", reasons, v.Doubts)
	}
}

// evictor is the part of faults in which Redis evicts heartbeats.
type evictor struct {
	calm
	from time.Time
}

func (e *evictor) begun() time.Time { return e.from }

func (*evictor) setup(w *world) {
	w.serve(append(history.AppendOnly(), "--maxmemory-policy", "volatile-ttl", "--maxmemory-samples", "64")...)
}

// mute cuts an owner off until speaks is called. It returns when its heartbeat will end before those of
// the running replicas, and of others. That is long before its time is over, which alive tells.
func (w *world) mute(id string, l *redisProxy, others ...string) (alive func() bool, speaks func()) {
	ctx := w.t.Context()
	back, rule := w.away(id), l.Hold()
	left := func() time.Duration { return w.PTTL(ctx, w.Heartbeat(id)).Val() }
	eventually(w.t, "everybody else has beaten since", func() bool {
		return !slices.ContainsFunc(w.alive(others), func(other string) bool {
			return other != id && w.PTTL(ctx, w.Heartbeat(other)).Val() < left()+200*time.Millisecond
		})
	})
	until := time.Now().Add(left())
	return func() bool { return time.Now().Before(until.Add(-ttl / 20)) }, func() {
		rule.End()
		back()
	}
}

// evict has Redis evict the heartbeat of an owner, if it has not ended by itself, and then ballast that has hardly more time left, by
// which memory is short. The server evicts first what has the least time left.
func (w *world) evict(id string) bool {
	w.t.Helper()
	const room = 16 << 10
	ctx, key, before := w.t.Context(), w.Heartbeat(id), w.evictedKeys()
	left := w.PTTL(ctx, key).Val()
	if left <= 0 {
		return false
	}
	require.NoError(w.t, w.Set(ctx, "ballast", strings.Repeat("b", 16*room), left+100*time.Millisecond).Err())
	eventually(w.t, "Redis evicts the heartbeat of "+id, func() bool {
		w.config("maxmemory", w.used(-room))
		return w.Exists(ctx, key).Val() == 0
	})
	w.config("maxmemory", "0")
	return w.evictedKeys() > before
}

// evictedKeys is the server's own count.
func (w *world) evictedKeys() (n int) {
	w.t.Helper()
	n, err := strconv.Atoi(infoOf(w.t, w.Client, "stats", "evicted_keys"))
	require.NoError(w.t, err)
	return n
}

// goes waits until entries of an owner go, or its heartbeat would have ended by now, evicted or not.
func (w *world) goes(owner *replica, alive func() bool) {
	held := len(w.entriesOf(owner.id))
	for alive() && len(w.entriesOf(owner.id)) > held/2 {
		lasting(patiencePause)
	}
}

// entriesOf are the entries that name an instance.
func (w *world) entriesOf(id string) (imeis []string) {
	for imei, owner := range w.HGetAll(w.t.Context(), w.Registry()).Val() {
		if owner == id {
			imeis = append(imeis, imei)
		}
	}
	return imeis
}

// lastTick is when the witness was last heard.
func (w *world) lastTick() time.Time {
	ms, err := w.HGet(w.t.Context(), w.Witness(), "last").Int64()
	require.NoError(w.t, err)
	return time.UnixMilli(ms)
}

// evictedUnseen: before anybody ticks again, the count of evicted keys is what it was before.
type evictedUnseen struct {
	evictor
	then  func(w *world, f *evictedUnseen)
	spare bool // there is a replica of Redis
	failover
}

func (f *evictedUnseen) begun() time.Time { return f.evictor.from }
func (f *evictedUnseen) hits() int        { return f.evictor.hits() }

func (f *evictedUnseen) recover(*world) {}

func (f *evictedUnseen) setup(w *world) {
	f.evictor.setup(w)
	if f.spare {
		f.failover.setup(w)
	}
}

func (f *evictedUnseen) fail(w *world) {
	for round := 0; round < 5 && f.hits() == 0; round++ { // on a busy machine it may take longer than the GAP
		owner := w.follower()
		f.evictor.from = time.Now()
		alive, speaks := w.mute(owner.id, owner.proxy)
		var holds []*proxy.Rule
		for _, r := range w.fleet() {
			if r != owner {
				holds = append(holds, r.proxy.Hold())
			}
		}
		last := w.lastTick()
		require.True(w.t, w.evict(owner.id), "its heartbeat has ended by itself: this run proves nothing")
		f.then(w, f)
		for _, h := range holds {
			h.End()
		}
		eventually(w.t, "somebody ticks", func() bool { return w.lastTick().After(last) })
		gap := w.lastTick().Sub(last)
		w.remark("evicted and forgotten between two ticks %v apart", gap.Round(time.Millisecond))
		if gap < (ttl-interval)/2 {
			f.evictor.hit(1)
		}
		w.goes(owner, alive)
		speaks()
		w.heals(time.Now())
		if f.hits() == 0 {
			w.warms(time.Now())
		}
	}
}

// restarted: Redis is killed and loads its file. All is as it was, and it has evicted nothing.
func restarted(w *world, _ *evictedUnseen) { w.anew(w.server.Restart) }

// promoted: a replica that lacks nothing takes its place. It has never evicted anything.
func promoted(w *world, f *evictedUnseen) {
	c := f.replica.Client()
	eventually(w.t, "the replica has all of it", func() bool {
		return infoOf(w.t, c, "replication", "master_repl_offset") == infoOf(w.t, w.Client, "replication", "master_repl_offset")
	})
	lines := slices.Clone(w.proxies)
	f.promote(w)
	for _, l := range lines {
		l.Retarget(f.replica.Addr())
	}
}

// statisticsReset: an operator has Redis count from 0.
func statisticsReset(w *world, _ *evictedUnseen) {
	w.anew(func() { require.NoError(w.t, w.ConfigResetStat(w.t.Context()).Err()) })
}

// withoutInfo: one of those that listen may not ask Redis how many keys it has evicted. What it cannot read it must not
// overwrite: the leader can.
type withoutInfo struct{ evictor }

func (f *withoutInfo) setup(w *world) {
	f.evictor.setup(w)
	for _, id := range []string{"one", "two", "three"} { // who will lead is not known yet
		require.NoError(w.t, w.acl(id, "on", ">secret", "~*", "&*", "+@all").Err())
		w.logins[id] = id + ":secret@"
	}
}

// acl changes a user of Redis.
func (w *world) acl(user string, rules ...any) *redis.Cmd {
	return w.Do(w.t.Context(), append([]any{"ACL", "SETUSER", user}, rules...)...)
}

func (f *withoutInfo) fail(w *world) {
	leader, owner := w.leader(), w.follower()
	poor := w.fleet()[slices.IndexFunc(w.fleet(), func(r *replica) bool { return r != leader && r != owner })]
	f.from = time.Now()
	alive, speaks := w.mute(owner.id, owner.proxy)
	require.NoError(w.t, w.acl(poor.id, "-info").Err())
	// The leader's next tick comes behind one of the poor one's, and the eviction is between them.
	quiet, ticks := leader.proxy.Hold(), poor.proxy.Answers(isTick)
	eventually(w.t, "the one without INFO listens", func() bool { return len(ticks.Counts()) > 0 })
	require.True(w.t, w.evict(owner.id), "its heartbeat has ended by itself: this run proves nothing")
	quiet.End()
	w.goes(owner, alive)
	speaks()
	f.hit(1)
	w.heals(time.Now())
	require.NoError(w.t, w.acl(poor.id, "+info").Err())
}

// slowAmongQuick: a replica beats more slowly than the others, of which one leads. What they know of it they must not forget before
// its heartbeats could have ended.
type slowAmongQuick struct{ evictor }

// The slow one's settings.
const (
	slowInterval = 2 * interval
	slowTTL      = 3 * ttl
)

func (f *slowAmongQuick) fail(w *world) {
	f.from = time.Now()
	usual := map[string]string{"HEARTBEAT_INTERVAL": interval.String(), "HEARTBEAT_TTL": ttl.String()}
	w.settings["HEARTBEAT_INTERVAL"], w.settings["HEARTBEAT_TTL"] = slowInterval.String(), slowTTL.String()
	slow := w.start("slow")
	for name, value := range usual {
		w.settings[name] = value
	}
	w.doubted("settings")
	w.slower(slow, slowInterval, slowTTL)
	var settled []int // silent devices come to it, which stay
	for i := 0; i < w.devices.Len(); i += 4 {
		settled = append(settled, i)
	}
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), settled, func(int) *replica { return slow }))
	w.named(settled)
	for _, i := range settled {
		w.devices.DropStale(i)
	}

	// It has just beaten, and has a line no more: nobody hears of its settings. Redis evicts its heartbeat, which was good for
	// much longer than the others need to believe a silence.
	eventually(w.t, "it has just beaten", func() bool {
		return w.PTTL(w.t.Context(), w.Heartbeat(slow.id)).Val() > slowTTL-slowInterval/4
	})
	back, rule := w.away(slow.id), slow.proxy.Hold()
	until := time.Now().Add(w.PTTL(w.t.Context(), w.Heartbeat(slow.id)).Val() - slowInterval/2)
	f.evictSlow(w, slow)
	f.hit(1)
	w.goes(slow, func() bool { return time.Now().Before(until) })
	rule.End()
	back()
	w.heals(time.Now())

	w.leaves(slow)
	w.slowerEnded(slow)
}

// evictSlow has the others' heartbeats evicted too, which have less time left: they beat again at once.
func (f *slowAmongQuick) evictSlow(w *world, slow *replica) {
	var back []func()
	for _, r := range w.fleet() {
		if r != slow {
			back = append(back, w.away(r.id))
		}
	}
	require.True(w.t, w.evict(slow.id))
	eventually(w.t, "the others beat", func() bool {
		return w.Exists(w.t.Context(), w.Heartbeat("one"), w.Heartbeat("two"), w.Heartbeat("three")).Val() == 3
	})
	for _, b := range back {
		b()
	}
}
