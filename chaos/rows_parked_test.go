package chaos

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// parkedRows are about what Redis did not hear at the right time from a device that is where it is
// and says nothing more.
var parkedRows = []row{
	{35, "ParkedAfterAHiccup", false, 20, nil, parkedAfterAHiccup},
	{35, "EvidenceFromBeforeAnOutage", false, 20, nil, evidenceFromBeforeAnOutage},
}

// halfOpen is how long a replica keeps a socket whose device is said to be elsewhere, and which
// says nothing.
const halfOpen = time.Minute

// Redis cannot be written to for longer than a handshake is evidence, just when devices move. Then
// all is well again, and the devices say nothing more: their old sockets are half open, the new
// ones silent. They are routable within minutes all the same.
func parkedAfterAHiccup(w *environment) {
	met := w.opens()
	to := w.Replicas()[0]
	var moved []int
	for i := range w.Fleet.Len() {
		if w.Fleet.At(i) != to.Devices {
			moved = append(moved, i)
		}
	}
	lost := to.Proxy.LoseRequest(func(r proxy.Request) bool { return harness.IsRegister(r) || harness.IsHeal(r) }, -1)
	require.NoError(w.T, w.Fleet.ConnectAll(w.T.Context(), moved, func(int) *harness.Replica { return to }))
	harness.Lasting(harness.Interval)
	lost.End()
	met.hit(lost.Hits())
	begun, truth := time.Now(), w.Truth()
	for late := begun.Add(halfOpen + 10*harness.Interval); time.Now().Before(late) && !w.routable(truth); harness.Lasting(harness.Interval / 4) {
	}
	v := w.judge()
	w.within("parked devices routable", v.Quiet(begun), halfOpen+5*harness.Interval)
	require.Zero(w.T, v.Evicted(""))
	require.Empty(w.T, w.ClosedByTheRunning())
}

// A replica has seen that an entry names another, and has the proof that the device is here, but
// cannot write: and it may not for long. By then the device has really moved, to the very one that
// the entry named. What was true before the outage takes nothing from there.
func evidenceFromBeforeAnOutage(w *environment) {
	met := w.opens()
	former, next := w.Replicas()[0], w.Replicas()[1]
	ctx := w.T.Context()
	var moved []int
	for i := range w.Fleet.Len() {
		if w.Fleet.At(i) == former.Devices {
			moved = append(moved, i)
		}
	}
	heals := former.Proxy.LoseRequest(harness.IsHeal, -1)
	w.Meddle("a late write of "+next.ID, func(p redis.Pipeliner) {
		for _, i := range moved {
			p.HSet(ctx, w.Registry(), w.Fleet.IMEI(i), next.ID)
		}
	})
	harness.Eventually(w.T, "it tries to take them back", func() bool { // it has seen that, acknowledged a frame, and a further one came
		for _, i := range moved {
			require.NoError(w.T, w.Fleet.Send(ctx, i))
		}
		return heals.Hits() > 3
	})
	met.hit(heals.Hits())
	require.NoError(w.T, w.Fleet.ConnectAll(ctx, moved, func(int) *harness.Replica { return next }))
	w.named(moved)
	harness.Lasting(judge.LateWrite + harness.Interval/2) // nothing that was under way can land any more
	heals.End()
	harness.Lasting(2 * harness.Interval)
	for _, i := range moved {
		w.Fleet.DropStale(i)
	}
	v := w.judge()
	require.Zero(w.T, v.Evicted(""))
}
