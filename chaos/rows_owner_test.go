package chaos

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/janitor"
)

// ownerRows are about owners that stop. Those that live anew under their id are in livesRows, what
// devices do besides in movesRows.
var ownerRows = []row{
	{1, "NoFault", false, 60, nil, noFault},
	{15, "OwnerStoppedForHalfItsTTL", false, 60, nil, under(&ownerStopped{lasts: harness.TTL / 2}, healedSoon)},
	{15, "OwnerStoppedPastItsTTL", false, 60, nil, under(&ownerStopped{lasts: harness.TTL * 12 / 10},
		healedSoon)},
	{15, "OwnerStoppedUntilItIsSwept", false, 60, nil,
		under(&ownerStopped{lasts: 2 * harness.TTL, swept: true}, healedSoon)},
	{15, "OwnerStoppedUntilItIsSweptUnindexed", false, 60, unindexed,
		under(&ownerStopped{lasts: 2 * harness.TTL, swept: true}, healedSoon)},
	{15, "FleetStoppedPastItsTTL", false, 60, operated, under(&fleetStopped{}, nothingEvicted)},
}

// unindexed replicas keep no reverse index: only the full scan finds the dead.
var unindexed = map[string]string{"REGISTRY_REVERSE_INDEX": "false"}

// No fault at all, but replicas that end and begin again under their ids, gracefully and not.
// Nothing is swept: each new life hands back what the former one left, and that within the bounds
// of a plain death.
func noFault(w *environment) {
	ids := []string{"one", "two", "three"}
	for _, id := range ids {
		w.Start(id)
	}
	w.Spread(harness.Some(0, w.Fleet.Len()))
	w.Registered(0)
	w.Listened()
	w.Traffic.Start(w.Environment)
	for i := range 2 * len(ids) {
		w.Moves()
		r := w.Replicas()[0] // the oldest
		if i == len(ids) {
			r = w.Leader()
		}
		if i%2 == 0 {
			require.Zero(w, w.Terminate(r), r.Log())
		} else {
			w.Kill(r)
		}
		w.Start(r.ID)
	}
	w.Moves()
	w.ends()
	v := w.judge()
	require.Zero(w, v.WrongDeletes())
	require.Equal(w, v.FalseDeaths, v.Evicted(""), "a new life was there in time to hand everything back")
}

// ownerStopped freezes a replica that does not lead.
type ownerStopped struct {
	calm
	lasts time.Duration
	swept bool // and until nothing of it is left
	owner *harness.Replica
	cont  func()
	woken time.Time
}

func (f *ownerStopped) fail(w *environment) {
	f.owner = w.Follower()
	f.cont = w.Stop(f.owner)
	harness.Eventually(w, "the kernel has stopped it", f.owner.Stopped)
	<-time.After(f.lasts)
	if f.lasts > harness.TTL {
		w.heartbeatExpires(f.owner)
	}
	if f.swept {
		harness.Eventually(w, "it is swept", func() bool { return !w.SIsMember(w.Context(), w.Roster(), f.owner.ID).Val() })
	}
	if f.owner.Stopped() {
		f.hit(1)
	}
}

// recover waits until the owner has beaten again: devices go on meanwhile. A handshake that was
// under way when it woke lands on top of a newer one, and what puts that right is the device's next
// frame.
func (f *ownerStopped) recover(w *environment) {
	f.woken = time.Now()
	f.cont()
	harness.Eventually(w, "it beats", func() bool {
		ms, _, _ := strings.Cut(w.Get(w.Context(), w.Heartbeat(f.owner.ID)).Val(), "/")
		at, err := strconv.ParseInt(ms, 10, 64)
		return err == nil && time.UnixMilli(at).Sub(f.woken) > harness.Interval/2
	})
	// By itself: half of its devices are silent until the end.
	harness.Eventually(w, "its entries are back", func() bool {
		entries := w.entries()
		for imei := range w.heldThrough(f.owner.ID, f.woken) {
			if entries[imei] != f.owner.ID {
				return false
			}
		}
		return true
	})
}

// heartbeatExpires waits until Redis has no heartbeat of a replica.
func (w *environment) heartbeatExpires(r *harness.Replica) {
	w.Helper()
	harness.Eventually(w, "its heartbeat expires", func() bool { return !w.beats(r.ID) })
}

// heldThrough are the devices whose sockets at an instance were open at a time and still are.
func (w *environment) heldThrough(id string, at time.Time) map[string]bool {
	held := make(map[string]bool)
	sockets, _ := w.Fleet.History()
	for _, s := range sockets {
		if s.Instance == id && s.LiveAt(at) && s.Ended.IsZero() {
			held[s.IMEI] = true
		}
	}
	return held
}

// healedSoon: the entries of all sockets that the owner has held throughout name it again an
// interval after it goes on.
func healedSoon(w *environment, v *judge.Verdict) {
	f := w.fault.(*ownerStopped)
	held := w.heldThrough(f.owner.ID, f.woken)
	require.NotEmpty(w, held, "no device has stayed: this run proves nothing")
	back, all := f.woken, w.spells()
	for imei := range held {
		since := all.since(imei, f.owner.ID)
		require.False(w, since.IsZero(), imei)
		if since.After(back) {
			back = since
		}
	}
	w.within("its entries back after it goes on", back.Sub(f.woken), harness.Interval)
	if f.swept {
		require.GreaterOrEqual(w, v.FalseDeaths, len(held), "those were evicted, and it was no death")
		require.GreaterOrEqual(w, v.Healed, len(held))
	}
}

// fleetStopped freezes everybody for longer than the TTL. One of them goes on a little before the
// others.
type fleetStopped struct {
	calm
	fleet []*harness.Replica
	conts []func()
	back  func()
	from  time.Time
}

func (f *fleetStopped) fail(w *environment) {
	f.from = time.Now()
	f.fleet = slices.Clone(w.Replicas())
	w.Rand.Shuffle(len(f.fleet), func(i, j int) { f.fleet[i], f.fleet[j] = f.fleet[j], f.fleet[i] })
	for _, r := range f.fleet {
		f.conts = append(f.conts, w.Stop(r))
	}
	f.back = w.Outage("")
	<-time.After(harness.TTL)
	for _, r := range f.fleet {
		w.heartbeatExpires(r)
		if r.Stopped() {
			f.hit(1)
		}
	}
	require.Len(w, f.fleet, f.hits())
}

// recover: the first leads, and could sweep the others before they stir. Then it waits until
// deletes may begin again, since what a leader does then is part of this.
func (f *fleetStopped) recover(w *environment) {
	f.conts[0]()
	harness.Eventually(w, "the first leads and has a pass", func() bool {
		s, err := f.fleet[0].Status()
		return err == nil && s.Janitor.Leading && len(s.Janitor.Sweeps) > 0 && !slices.ContainsFunc(s.Janitor.Sweeps, func(r janitor.Report) bool {
			return r.Epoch != s.Janitor.Epoch
		})
	})
	for _, cont := range f.conts[1:] {
		cont()
	}
	f.back()
	w.listens(time.Now())
	w.sweeps()
}

// listens waits until the witness, as Redis has it, was heard after a time and has listened for
// GRACE.
func (w *environment) listens(after time.Time) {
	w.Helper()
	harness.Eventually(w, "the witness has listened for GRACE", func() bool {
		last, err := w.HGet(w.Context(), w.Witness(), "last").Int64()
		since, err2 := w.HGet(w.Context(), w.Witness(), "since").Int64()
		return err == nil && err2 == nil && last > after.UnixMilli() && last-since >= harness.GracePeriod.Milliseconds()
	})
}

// sweeps has the leader make a pass of every sweep, and waits until its full scan has read every
// entry. By itself a full scan that can find nothing is put off.
func (w *environment) sweeps() {
	w.Helper()
	called := time.Now()
	harness.Eventually(w, "a full scan has read everything", func() bool {
		leader := w.Leader()
		if w.asks(leader, "sweep") != http.StatusOK {
			return false
		}
		s, err := leader.Status()
		full := s.Janitor.FullScan
		return err == nil && full != nil && full.Started.After(called)
	})
}

func nothingEvicted(w *environment, v *judge.Verdict) {
	require.Zero(w, v.Evicted(""))
	require.True(w, v.LastHold().After(w.fault.(*fleetStopped).from))
}

// staleRows are about owners that have read something, and act on it when it is long not true any
// more; or never act.
var staleRows = []row{
	{18, "OwnerStoppedReconciling", false, 60, nil, under(&ownerStale{at: failpoint.Reconciling}, staysMoved)},
	{18, "OwnerStoppedComparing", false, 60, nil, under(&ownerStale{at: failpoint.Comparing}, staysMoved)},
	{18, "OwnerStoppedBeforeAnswering", false, 60, nil,
		under(&ownerStale{at: failpoint.UnansweredRegister}, staysMoved)},
	{18, "OwnerKilledReconciling", false, 60, nil,
		under(&ownerStale{at: failpoint.Reconciling, dies: true}, staysMoved)},
	{18, "OwnerKilledComparing", false, 60, nil, under(&ownerStale{at: failpoint.Comparing, dies: true},
		staysMoved)},
	{18, "OwnerKilledBeforeAnswering", false, 60, nil,
		under(&ownerStale{at: failpoint.UnansweredRegister, dies: true}, staysMoved)},
}

// ownerStale stops an owner, for longer than its TTL, between reading and acting on it, or before
// it answers a device whose registration is late. Its silent devices move elsewhere meanwhile, and
// half of them have closed their old sockets when it wakes up. Or it is killed there, and its
// devices move.
type ownerStale struct {
	calm
	at    failpoint.Name
	dies  bool
	moved []int
	to    map[string]string // IMEI -> where the moved are
}

func (f *ownerStale) fail(w *environment) {
	owner := w.Follower()
	others := w.Others(owner)
	for i := 0; i < w.Fleet.Len(); i += 2 { // those that are not traffic's
		if w.Fleet.At(i) == owner.Devices {
			f.moved = append(f.moved, i)
		}
	}
	require.NotEmpty(w, f.moved)
	order := "stop"
	if f.dies {
		order = "kill"
	}
	owner.Failpoints.Arm(w, f.at, order)
	mend := f.provoke(w, owner)
	owner.Failpoints.Wait(w, f.at) // it has read, and done nothing
	f.hit(owner.Failpoints.Hits(w, f.at))
	back := w.Outage(owner.ID)
	if f.dies {
		require.Equal(w, -1, owner.Exit(), "it was not killed by a signal")
		w.Died(owner, "killed")
		w.Ends(owner, func() {})
	}
	mend() // what was under way lands

	require.NoError(w, w.Fleet.ConnectAll(w.Context(), f.moved, func(i int) *harness.Replica { return others[i/2%2] }))
	live := w.Fleet.Live()
	f.to = make(map[string]string)
	for n, i := range f.moved {
		f.to[w.Fleet.IMEI(i)] = live[w.Fleet.IMEI(i)]
		if n%2 == 0 {
			w.Fleet.DropStale(i)
		}
	}
	harness.Eventually(w, "its heartbeat expires", func() bool { return !w.beats(owner.ID) })
	f.stand(w)
	if f.dies {
		return
	}
	w.Gate.Lock() // what is open there is served again before it is asked
	owner.Failpoints.Resume(w, f.at, owner.Cont)
	back()
	w.Gate.Unlock()
	harness.Eventually(w, "it beats again", func() bool { return w.beats(owner.ID) })
	f.stand(w)
}

// provoke has the owner come by the point. The returned function mends what that took.
func (f *ownerStale) provoke(w *environment, owner *harness.Replica) (mend func()) {
	switch f.at {
	case failpoint.Reconciling:
		// An index of another size than its claims' number makes it read all, and hand back what it
		// does not hold: those that move, and some that were never there.
		var missing []any
		for _, i := range w.elsewhere(owner, 5) {
			missing = append(missing, w.Fleet.IMEI(i))
			f.moved = append(f.moved, i)
		}
		w.Meddle("index", func(p redis.Pipeliner) { p.SAdd(w.Context(), w.Layout.Devices(owner.ID), missing...) })
	case failpoint.Comparing:
		// Every beat compares some. What it finds to be lost it puts back, unless it has moved
		// meanwhile.
		var lost []string
		for imei, id := range w.entries() {
			if id == owner.ID {
				lost = append(lost, imei)
			}
		}
		w.Meddle("entries", func(p redis.Pipeliner) { p.HDel(w.Context(), w.Registry(), lost...) })
	case failpoint.UnansweredRegister:
		// Silent devices come from elsewhere, and do not wait for ever.
		rule := owner.Proxy.DelayEach(harness.IsRegister, harness.Interval)
		coming := w.elsewhere(owner, 5)
		ctx, cancel := context.WithCancel(w.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			// it is not answered
			_ = w.Fleet.ConnectAll(ctx, coming, func(int) *harness.Replica { return owner })
		}()
		f.moved = append(f.moved, coming...)
		return func() {
			cancel()
			<-done
			rule.End()
			w.Logf("%d registrations were late", rule.Hits())
		}
	}
	return func() {}
}

// elsewhere are some silent devices that are not at a replica.
func (w *environment) elsewhere(r *harness.Replica, n int) (which []int) {
	for i := 0; i < w.Fleet.Len() && len(which) < n; i += 2 {
		if w.Fleet.At(i) != r.Devices {
			which = append(which, i)
		}
	}
	return which
}

// stand waits until each entry of those that have moved names where they are. After a registration
// that landed late it names where they are not, and for silent devices that may be so for ten
// intervals: they speak.
func (f *ownerStale) stand(w *environment) {
	w.Helper()
	harness.Eventually(w, "the entries of those that moved name where they are", func() bool {
		entries, stand := w.entries(), true
		for _, i := range f.moved {
			imei := w.Fleet.IMEI(i)
			if entries[imei] == f.to[imei] {
				continue
			}
			stand = false
			if f.at == failpoint.UnansweredRegister {
				require.NoError(w, w.Fleet.Send(w.Context(), i))
			}
		}
		return stand
	})
}

// staysMoved: those that have moved are still where they went; C3 says that nobody took them from
// there in between.
func staysMoved(w *environment, v *judge.Verdict) {
	f := w.fault.(*ownerStale)
	live := w.Truth()
	for imei, id := range f.to {
		require.Equal(w, id, live[imei])
		require.Equal(w, id, v.Final.Hashes[w.Registry()][imei])
	}
}
