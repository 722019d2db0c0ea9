package chaos

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// staleRows are about owners that have read something, and act on it when it is long not true any
// more; or never act.
var staleRows = []row{
	{18, "OwnerStoppedReconciling", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.Reconciling} }, staysMoved)},
	{18, "OwnerStoppedComparing", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.Comparing} }, staysMoved)},
	{18, "OwnerStoppedBeforeAnswering", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.UnansweredRegister} }, staysMoved)},
	{18, "OwnerKilledReconciling", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.Reconciling, dies: true} }, staysMoved)},
	{18, "OwnerKilledComparing", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.Comparing, dies: true} }, staysMoved)},
	{18, "OwnerKilledBeforeAnswering", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.UnansweredRegister, dies: true} }, staysMoved)},
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
	var others []*harness.Replica
	for _, r := range w.Replicas() {
		if r != owner {
			others = append(others, r)
		}
	}
	for i := 0; i < w.Fleet.Len(); i += 2 { // those that are not traffic's
		if w.Fleet.At(i) == owner.Devices {
			f.moved = append(f.moved, i)
		}
	}
	require.NotEmpty(w.T, f.moved)
	order := "stop"
	if f.dies {
		order = "kill"
	}
	owner.Failpoints.Arm(w.T, f.at, order)
	mend := f.provoke(w, owner)
	owner.Failpoints.Wait(w.T, f.at) // it has read, and done nothing
	f.hit(owner.Failpoints.Hits(w.T, f.at))
	back := w.Outage(owner.ID)
	if f.dies {
		require.Equal(w.T, -1, owner.Exit(), "it was not killed by a signal")
		w.Died(owner, "killed")
		w.ReplicaEnded(owner)
	}
	mend() // what was under way lands

	require.NoError(w.T, w.Fleet.ConnectAll(w.T.Context(), f.moved, func(i int) *harness.Replica { return others[i/2%2] }))
	live := w.Fleet.Live()
	f.to = make(map[string]string)
	for n, i := range f.moved {
		f.to[w.Fleet.IMEI(i)] = live[w.Fleet.IMEI(i)]
		if n%2 == 0 {
			w.Fleet.DropStale(i)
		}
	}
	harness.Eventually(w.T, "its heartbeat expires", func() bool { return w.Exists(w.T.Context(), w.Heartbeat(owner.ID)).Val() == 0 })
	f.stand(w)
	if f.dies {
		return
	}
	w.Gate.Lock() // what is open there is served again before it is asked
	owner.Failpoints.Resume(w.T, f.at, owner.Cont)
	back()
	w.Gate.Unlock()
	harness.Eventually(w.T, "it beats again", func() bool { return w.Exists(w.T.Context(), w.Heartbeat(owner.ID)).Val() == 1 })
	f.stand(w)
}

// provoke has the owner come by the point. The returned function mends what that took.
func (f *ownerStale) provoke(w *environment, owner *harness.Replica) (mend func()) {
	switch f.at {
	case failpoint.Reconciling:
		// An index of another size than its claims' number makes it read all, and hand back what it
		// does not hold: those that move, and some that were never there.
		var strangers []any
		for _, i := range w.elsewhere(owner, 5) {
			strangers = append(strangers, w.Fleet.IMEI(i))
			f.moved = append(f.moved, i)
		}
		w.Meddle("index", func(p redis.Pipeliner) { p.SAdd(w.T.Context(), w.Layout.Devices(owner.ID), strangers...) })
	case failpoint.Comparing:
		// Every beat compares some. What it finds to be lost it puts back, unless it has moved
		// meanwhile.
		var lost []string
		for imei, id := range w.HGetAll(w.T.Context(), w.Registry()).Val() {
			if id == owner.ID {
				lost = append(lost, imei)
			}
		}
		w.Meddle("entries", func(p redis.Pipeliner) { p.HDel(w.T.Context(), w.Registry(), lost...) })
	case failpoint.UnansweredRegister:
		// Silent devices come from elsewhere, and do not wait for ever.
		rule := owner.Proxy.DelayEach(harness.IsRegister, harness.Interval)
		coming := w.elsewhere(owner, 5)
		ctx, cancel := context.WithCancel(w.T.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = w.Fleet.ConnectAll(ctx, coming, func(int) *harness.Replica { return owner }) // it is not answered
		}()
		f.moved = append(f.moved, coming...)
		return func() {
			cancel()
			<-done
			rule.End()
			w.T.Logf("%d registrations were late", rule.Hits())
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
	w.T.Helper()
	harness.Eventually(w.T, "the entries of those that moved name where they are", func() bool {
		entries, stand := w.HGetAll(w.T.Context(), w.Registry()).Val(), true
		for _, i := range f.moved {
			imei := w.Fleet.IMEI(i)
			if entries[imei] == f.to[imei] {
				continue
			}
			stand = false
			if f.at == failpoint.UnansweredRegister {
				require.NoError(w.T, w.Fleet.Send(w.T.Context(), i))
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
		require.Equal(w.T, id, live[imei])
		require.Equal(w.T, id, v.Final.Hashes[w.Registry()][imei])
	}
}
