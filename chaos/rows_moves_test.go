package chaos

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/proxy"
)

// movesRows are about devices that move while something else is done with their entries.
var movesRows = []row{
	{18, "DeviceMovesWhileItsEntryIsSwept", true, 60, nil, deviceMovesWhileSwept},
	{18, "LateWriteOfTheFormerOwner", false, 60, nil, lateRegistration(false)},
	{18, "LateWriteThatWasGivenUp", false, 60, nil, lateRegistration(true)},
}

// A replica was killed, and the delete of its entries is on its way to Redis when half of its
// devices register elsewhere. Those entries stand, and are told as reowned; the others go.
func deviceMovesWhileSwept(w *environment) {
	met := w.opens()
	leader, victim := w.Leader(), w.Follower()
	hold := leader.Proxy.HoldEach(harness.IsBatch)
	defer hold.End()
	_, lost := w.Kill(victim)
	batch := nextOf(w, hold.Caught)
	moved := lost[:len(lost)/2]
	w.Spread(moved)
	w.Registered(len(lost) - len(moved))
	for _, i := range lost {
		require.Contains(w, batch, w.Fleet.IMEI(i), "it was to be deleted")
	}
	released := time.Now()
	hold.End()
	harness.Eventually(w, "the batch is done", func() bool { return leader.Proxy.Verdicts()["DONE"] > 0 })
	met.hit(leader.Proxy.Verdicts()["DONE"])
	w.ends()
	v := w.judge()
	require.Equal(w, len(lost)-len(moved), v.Evicted(victim.ID))
	reowned := w.XRange(w.Context(), w.Log(), harness.BatchIDOf(batch), harness.BatchIDOf(batch)).Val()
	require.Len(w, reowned, 1)
	require.Equal(w, len(moved), number(w, reowned[0].Values["reowned"]))
	for _, i := range moved {
		w.stood(w.Fleet.IMEI(i), released)
	}
}

// stood: what an entry named at a time it has named ever since.
func (w *environment) stood(imei string, since time.Time) {
	w.Helper()
	for _, s := range w.spells() {
		require.False(w, s.imei == imei && s.until.After(since), "entry %s no longer named %s at %v", imei, s.owner, s.until)
	}
}

// A registration is kept back by the network while its device goes elsewhere and registers there.
// It lands behind that one: the newer owner's entry stands again within an interval, at the
// device's next frame. givenUp: the former owner has given the registration up and looked after it
// before it lands. Half of the old sockets are closed by then, half never.
func lateRegistration(givenUp bool) func(w *environment) {
	return func(w *environment) {
		met := w.opens()
		former, next := w.Replicas()[0], w.Replicas()[1]
		ctx := w.Context()
		var which []int // those of the third
		for i := 2; i < w.Fleet.Len(); i += 3 {
			which = append(which, i)
		}
		answers := former.Proxy.Answers(harness.IsRegister)
		caught, release := former.Proxy.HoldNext(harness.IsRegister)
		defer release()
		back := w.Outage(former.ID)
		require.NoError(w, w.Fleet.ConnectAll(ctx, which, func(int) *harness.Replica { return former }))
		request := nextOf(w, caught)
		require.NoError(w, w.Fleet.ConnectAll(ctx, which, func(int) *harness.Replica { return next }))
		var late []int
		for n, i := range which {
			if n%2 == 0 {
				w.Fleet.DropStale(i)
			}
			if slices.Contains(request, w.Fleet.IMEI(i)) {
				late = append(late, i)
			}
		}
		require.NotEmpty(w, late)
		w.Registered(0)
		if givenUp {
			harness.Eventually(w, "the former owner gives up", func() bool {
				s, err := former.Status()
				return err == nil && s.Registry.Failing["register"] != ""
			})
		}
		before := answers.Counts()["OK"]
		release()
		back()
		harness.Eventually(w, "the registration lands", func() bool { return answers.Counts()["OK"] > before })
		harness.Eventually(w, "the entries name where the devices are", func() bool {
			stands := true
			for _, i := range late {
				require.NoError(w, w.Fleet.Send(ctx, i))
				stands = stands && w.HGet(ctx, w.Registry(), w.Fleet.IMEI(i)).Val() == next.ID
			}
			return stands
		})
		w.ends()
		all := w.spells()
		for _, i := range late {
			imei := w.Fleet.IMEI(i)
			if landed := all.since(imei, former.ID); !landed.IsZero() {
				met.hit(1)
				w.within("the entry stands again", all.since(imei, next.ID).Sub(landed), harness.Interval)
			}
		}
		require.Positive(w, met.hits(), "nothing landed late: this run proves nothing")
		w.judge()
	}
}

// parkedRows are about what Redis did not hear at the right time from a device that is where it is
// and says nothing more.
var parkedRows = []row{
	{35, "ParkedAfterAHiccup", false, 20, nil, parkedAfterAHiccup},
}

// Redis cannot be written to for longer than a handshake overwrites, just when devices move. Then
// all is well again, and the devices say nothing more: their old sockets are half open, the new
// ones silent. The new ones are newer.
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
	require.NoError(w, w.Fleet.ConnectAll(w.Context(), moved, func(int) *harness.Replica { return to }))
	harness.Lasting(harness.Interval)
	lost.End()
	met.hit(lost.Hits())
	begun, truth := time.Now(), w.Truth()
	for late := begun.Add(10 * harness.Interval); time.Now().Before(late) && !w.routable(truth); harness.Lasting(harness.Interval / 4) {
	}
	v := w.judge()
	w.within("parked devices routable", v.Quiet(begun), 3*harness.Interval)
	require.Zero(w, v.Evicted(""))
	require.Empty(w, w.ClosedByTheRunning())
}
