package chaos

import (
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/failpoint"
)

// staleRows are about owners that have read something, and act on it when it is long not true any more; or never act.
var staleRows = []row{
	{18, "OwnerStoppedReconciling", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.Reconciling} }, staysMoved)},
	{18, "OwnerStoppedComparing", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.Comparing} }, staysMoved)},
	{18, "OwnerStoppedBeforeAnswering", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.UnansweredRegister} }, staysMoved)},
	{18, "OwnerKilledReconciling", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.Reconciling, dies: true} }, staysMoved)},
	{18, "OwnerKilledComparing", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.Comparing, dies: true} }, staysMoved)},
	{18, "OwnerKilledBeforeAnswering", false, 60, nil, under(func() fault { return &ownerStale{at: failpoint.UnansweredRegister, dies: true} }, staysMoved)},
}

// ownerStale stops an owner, for longer than its TTL, between reading and acting on it, or before it answers a device whose
// registration is late. Its silent devices move elsewhere meanwhile, and half of them have closed their old sockets when it wakes
// up. Or it is killed there, and its devices move.
type ownerStale struct {
	calm
	at    failpoint.Name
	dies  bool
	moved []int
	to    map[string]string // IMEI -> where the moved are
}

func (f *ownerStale) fail(w *world) {
	owner := w.follower()
	var others []*replica
	for _, r := range w.fleet() {
		if r != owner {
			others = append(others, r)
		}
	}
	for i := 0; i < w.devices.Len(); i += 2 { // those that are not traffic's
		if w.devices.at(i) == owner.devices {
			f.moved = append(f.moved, i)
		}
	}
	require.NotEmpty(w.t, f.moved)
	order := "stop"
	if f.dies {
		order = "kill"
	}
	owner.points.arm(w.t, f.at, order)
	mend := f.provoke(w, owner)
	owner.points.wait(w.t, f.at) // it has read, and done nothing
	f.hit(owner.points.hits(w.t, f.at))
	back := w.away(owner.id)
	if f.dies {
		require.Equal(w.t, -1, owner.exit(), "it was not killed by a signal")
		w.died(owner, "killed")
		w.ended(owner)
	}
	mend() // what was under way lands

	require.NoError(w.t, w.devices.moveAll(w.t.Context(), f.moved, func(i int) *replica { return others[i/2%2] }))
	live := w.devices.live()
	f.to = make(map[string]string)
	for n, i := range f.moved {
		f.to[w.devices.IMEI(i)] = live[w.devices.IMEI(i)]
		if n%2 == 0 {
			w.devices.DropStale(i)
		}
	}
	eventually(w.t, "its heartbeat expires", func() bool { return w.Exists(w.t.Context(), w.Heartbeat(owner.id)).Val() == 0 })
	f.stand(w)
	if f.dies {
		return
	}
	w.gate.Lock() // what is open there is served again before it is asked
	owner.points.resume(w.t, f.at, owner.cont)
	back()
	w.gate.Unlock()
	eventually(w.t, "it beats again", func() bool { return w.Exists(w.t.Context(), w.Heartbeat(owner.id)).Val() == 1 })
	f.stand(w)
}

// provoke has the owner come by the point. The returned function mends what that took.
func (f *ownerStale) provoke(w *world, owner *replica) (mend func()) {
	switch f.at {
	case failpoint.Reconciling:
		// An index of another size than its claims' number makes it read all, and hand back what it does not hold: those that
		// move, and some that were never there.
		var strangers []any
		for _, i := range w.elsewhere(owner, 5) {
			strangers = append(strangers, w.devices.IMEI(i))
			f.moved = append(f.moved, i)
		}
		w.meddle("index", func(p redis.Pipeliner) { p.SAdd(w.t.Context(), w.Layout.Devices(owner.id), strangers...) })
	case failpoint.Comparing:
		// Every beat compares some. What it finds to be lost it puts back, unless it has moved meanwhile.
		var lost []string
		for imei, id := range w.HGetAll(w.t.Context(), w.Registry()).Val() {
			if id == owner.id {
				lost = append(lost, imei)
			}
		}
		w.meddle("entries", func(p redis.Pipeliner) { p.HDel(w.t.Context(), w.Registry(), lost...) })
	case failpoint.UnansweredRegister:
		// Silent devices come from elsewhere, and do not wait for ever.
		rule := owner.proxy.DelayEach(isRegister, interval)
		coming := w.elsewhere(owner, 5)
		ctx, cancel := context.WithCancel(w.t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = w.devices.moveAll(ctx, coming, func(int) *replica { return owner }) // it is not answered
		}()
		f.moved = append(f.moved, coming...)
		return func() {
			cancel()
			<-done
			rule.End()
			w.t.Logf("%d registrations were late", rule.Hits())
		}
	}
	return func() {}
}

// elsewhere are some silent devices that are not at a replica.
func (w *world) elsewhere(r *replica, n int) (which []int) {
	for i := 0; i < w.devices.Len() && len(which) < n; i += 2 {
		if w.devices.at(i) != r.devices {
			which = append(which, i)
		}
	}
	return which
}

// stand waits until each entry of those that have moved names where they are. After a registration that landed late it names
// where they are not, and for silent devices that may be so for ten intervals: they speak.
func (f *ownerStale) stand(w *world) {
	w.t.Helper()
	eventually(w.t, "the entries of those that moved name where they are", func() bool {
		entries, stand := w.HGetAll(w.t.Context(), w.Registry()).Val(), true
		for _, i := range f.moved {
			imei := w.devices.IMEI(i)
			if entries[imei] == f.to[imei] {
				continue
			}
			stand = false
			if f.at == failpoint.UnansweredRegister {
				require.NoError(w.t, w.devices.report(w.t.Context(), i))
			}
		}
		return stand
	})
}

// staysMoved: those that have moved are still where they went; C3 says that nobody took them from there in between.
func staysMoved(w *world, v *judge.Verdict) {
	f := w.fault.(*ownerStale)
	live := w.truth()
	for imei, id := range f.to {
		require.Equal(w.t, id, live[imei])
		require.Equal(w.t, id, v.Final.Hashes[w.Registry()][imei])
	}
}
