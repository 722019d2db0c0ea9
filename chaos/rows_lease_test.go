package chaos

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// leaseRows: what is agreed in Redis is not as it should be: a lease that never ends, settings that differ.
var leaseRows = []row{
	{26, "LeaseOfNobodyWithoutExpiry", false, 60, nil, under(func() fault { return &endless{how: ofNobody} }, nothingWent)},
	{26, "LeaseLosesItsExpiry", false, 60, nil, under(func() fault { return &endless{how: persisted} }, nothingWent)},
	{26, "MixedSettings", false, 60, nil, under(func() fault { return &mixed{} }, heldWhileMixed)},
}

// endless is a lease without an expiry, whose holder does not renew it. Contenders watch it for a lease TTL and give it one.
type endless struct {
	calm
	how func(w *world) (over func())
}

func (f *endless) fail(w *world) {
	over := f.how(w)
	begun := time.Now()
	token := w.Get(w.t.Context(), w.Lease()).Val()
	require.Equal(w.t, time.Duration(-1), w.PTTL(w.t.Context(), w.Lease()).Val())
	f.hit(1)
	eventually(w.t, "the lease is taken by another", func() bool {
		now := w.Get(w.t.Context(), w.Lease()).Val()
		return now != "" && now != token
	})
	w.within("a leader after the lease lost its end", time.Since(begun), 2*leaseTTL+2*leaseRetry)
	over()
	w.oneLeads()
}

func ofNobody(w *world) (over func()) {
	w.meddle("somebody takes the lease for ever", func(p redis.Pipeliner) { p.Set(w.t.Context(), w.Lease(), "somebody/x", 0) })
	return func() {}
}

// persisted takes the expiry away while the leader cannot renew.
func persisted(w *world) (over func()) {
	r := w.leader().proxy.AnswerWith(isLeaseCall, "TRYAGAIN later", -1)
	eventually(w.t, "a renewal is due", func() bool { return r.Hits() > 0 })
	w.meddle("the lease loses its expiry", func(p redis.Pipeliner) { p.Persist(w.t.Context(), w.Lease()) })
	return r.End
}

// mixed runs a replica with another TTL among the others for a while: how long silence must last to be believed is not agreed.
type mixed struct {
	calm
	from, until time.Time
}

func (f *mixed) fail(w *world) {
	usual := w.settings["HEARTBEAT_TTL"]
	w.settings["HEARTBEAT_TTL"] = (2 * ttl).String()
	odd := w.start("odd")
	w.settings["HEARTBEAT_TTL"] = usual
	w.doubted("settings")
	f.from = time.Now()
	w.plant("ghost", swept, true)
	w.beats(2)
	f.until = time.Now()
	f.hit(1)

	w.leaves(odd)
}

func heldWhileMixed(w *world, v *judge.Verdict) {
	allSwept(w, v)
	f := w.fault.(*mixed)
	require.Equal(w.t, "settings", v.Final.Hashes[w.Witness()]["reason"])
	for _, b := range v.Batches {
		require.False(w.t, b.At.After(f.from) && b.At.Before(f.until), "swept while settings differ")
	}
}
