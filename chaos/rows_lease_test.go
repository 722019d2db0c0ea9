package chaos

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// leaseRows: what is agreed in Redis is not as it should be: a lease that never ends, settings that
// differ.
var leaseRows = []row{
	{26, "LeaseOfNobodyWithoutExpiry", false, 60, nil, under(func() fault { return &endless{how: ofNobody} }, nothingWent)},
	{26, "LeaseLosesItsExpiry", false, 60, nil, under(func() fault { return &endless{how: persisted} }, nothingWent)},
	{26, "MixedSettings", false, 60, nil, under(func() fault { return &mixed{} }, heldWhileMixed)},
}

// endless is a lease without an expiry, whose holder does not renew it. Contenders watch it for a
// lease TTL and give it one.
type endless struct {
	calm
	how func(w *environment) (over func())
}

func (f *endless) fail(w *environment) {
	over := f.how(w)
	begun := time.Now()
	token := w.Get(w.T.Context(), w.Lease()).Val()
	require.Equal(w.T, time.Duration(-1), w.PTTL(w.T.Context(), w.Lease()).Val())
	f.hit(1)
	harness.Eventually(w.T, "the lease is taken by another", func() bool {
		now := w.Get(w.T.Context(), w.Lease()).Val()
		return now != "" && now != token
	})
	w.within("a leader after the lease lost its end", time.Since(begun), 2*harness.LeaseTTL+2*harness.LeaseRetry)
	over()
	w.OneLeads()
}

func ofNobody(w *environment) (over func()) {
	w.Meddle("somebody takes the lease for ever", func(p redis.Pipeliner) { p.Set(w.T.Context(), w.Lease(), "somebody/x", 0) })
	return func() {}
}

// persisted takes the expiry away while the leader cannot renew.
func persisted(w *environment) (over func()) {
	r := w.Leader().Proxy.AnswerWith(harness.IsLeaseCall, "TRYAGAIN later", -1)
	harness.Eventually(w.T, "a renewal is due", func() bool { return r.Hits() > 0 })
	w.Meddle("the lease loses its expiry", func(p redis.Pipeliner) { p.Persist(w.T.Context(), w.Lease()) })
	return r.End
}

// mixed runs a replica with another TTL among the others for a while: how long silence must last to
// be believed is not agreed.
type mixed struct {
	calm
	from, until time.Time
}

func (f *mixed) fail(w *environment) {
	usual := w.Settings["HEARTBEAT_TTL"]
	w.Settings["HEARTBEAT_TTL"] = (2 * harness.TTL).String()
	odd := w.Start("odd")
	w.Settings["HEARTBEAT_TTL"] = usual
	w.doubted("settings")
	f.from = time.Now()
	w.Plant("ghost", swept, true)
	w.Beats(2)
	f.until = time.Now()
	f.hit(1)

	w.Leaves(odd)
}

func heldWhileMixed(w *environment, v *judge.Verdict) {
	allSwept(w, v)
	f := w.fault.(*mixed)
	require.Equal(w.T, "settings", v.Final.Hashes[w.Witness()]["reason"])
	for _, b := range v.Batches {
		require.False(w.T, b.At.After(f.from) && b.At.Before(f.until), "swept while settings differ")
	}
}
