package chaos

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// parkedRows are about what Redis did not hear at the right time from a device that is where it is and says nothing more.
var parkedRows = []row{
	{35, "ParkedAfterAHiccup", false, 20, nil, parkedAfterAHiccup},
	{35, "EvidenceFromBeforeAnOutage", false, 20, nil, evidenceFromBeforeAnOutage},
}

// halfOpen is how long a replica keeps a socket whose device is said to be elsewhere, and which says nothing.
const halfOpen = time.Minute

// Redis cannot be written to for longer than a handshake is evidence, just when devices move. Then all is well again, and the devices
// say nothing more: their old sockets are half open, the new ones silent. They are routable within minutes all the same.
func parkedAfterAHiccup(w *world) {
	met := w.opens()
	to := w.fleet()[0]
	var moved []int
	for i := range w.devices.Len() {
		if w.devices.at(i) != to.devices {
			moved = append(moved, i)
		}
	}
	lost := to.proxy.LoseRequest(func(r proxy.Request) bool { return isRegister(r) || isHeal(r) }, -1)
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), moved, func(int) *replica { return to }))
	lasting(interval)
	lost.End()
	met.hit(lost.Hits())
	begun, truth := time.Now(), w.truth()
	for late := begun.Add(halfOpen + 10*interval); time.Now().Before(late) && !w.routable(truth); lasting(interval / 4) {
	}
	v := w.judge()
	w.within("parked devices routable", v.Quiet(begun), halfOpen+5*interval)
	require.Zero(w.t, v.Evicted(""))
	require.Empty(w.t, w.closedByTheRunning())
}

// A replica has seen that an entry names another, and has the proof that the device is here, but cannot write: and it may not for
// long. By then the device has really moved, to the very one that the entry named. What was true before the outage takes nothing
// from there.
func evidenceFromBeforeAnOutage(w *world) {
	met := w.opens()
	former, next := w.fleet()[0], w.fleet()[1]
	ctx := w.t.Context()
	var moved []int
	for i := range w.devices.Len() {
		if w.devices.at(i) == former.devices {
			moved = append(moved, i)
		}
	}
	heals := former.proxy.LoseRequest(isHeal, -1)
	w.meddle("a late write of "+next.id, func(p redis.Pipeliner) {
		for _, i := range moved {
			p.HSet(ctx, w.Registry(), w.devices.IMEI(i), next.id)
		}
	})
	eventually(w.t, "it tries to take them back", func() bool { // it has seen that, acknowledged a frame, and a further one came
		for _, i := range moved {
			require.NoError(w.t, w.devices.report(ctx, i))
		}
		return heals.Hits() > 3
	})
	met.hit(heals.Hits())
	require.NoError(w.t, w.devices.moveAll(ctx, moved, func(int) *replica { return next }))
	w.named(moved)
	lasting(judge.LateWrite + interval/2) // nothing that was under way can land any more
	heals.End()
	lasting(2 * interval)
	for _, i := range moved {
		w.devices.DropStale(i)
	}
	v := w.judge()
	require.Zero(w.t, v.Evicted(""))
}
