package chaos

import (
	"slices"
	"time"

	"github.com/stretchr/testify/require"
)

// movesRows are about devices that move while something else is done with their entries.
var movesRows = []row{
	{18, "DeviceMovesWhileItsEntryIsSwept", true, 60, nil, deviceMovesWhileSwept},
	{18, "LateWriteOfTheFormerOwner", false, 60, nil, lateRegistration(false)},
	{18, "LateWriteThatWasGivenUp", false, 60, nil, lateRegistration(true)},
	{19, "OldSocketsCloseLate", false, 60, nil, oldSocketsCloseLate},
}

// A replica was killed, and the delete of its entries is on its way to Redis when half of its devices register elsewhere. Those
// entries stand, and are told as reowned; the others go.
func deviceMovesWhileSwept(w *world) {
	met := w.opens()
	leader, victim := w.leader(), w.follower()
	hold := leader.proxy.HoldEach(isBatch)
	defer hold.End()
	_, lost := w.kill(victim)
	batch := nextOf(w.t, hold.Caught)
	moved := lost[:len(lost)/2]
	w.spread(moved)
	w.registered(len(lost) - len(moved))
	for _, i := range lost {
		require.Contains(w.t, batch, w.devices.IMEI(i), "it was to be deleted")
	}
	released := time.Now()
	hold.End()
	eventually(w.t, "the batch is done", func() bool { return leader.proxy.verdicts()["DONE"] > 0 })
	met.hit(leader.proxy.verdicts()["DONE"])
	w.ends()
	v := w.judge()
	require.Equal(w.t, len(lost)-len(moved), v.Evicted(victim.id))
	reowned := w.XRange(w.t.Context(), w.Audit(), batchIDOf(batch), batchIDOf(batch)).Val()
	require.Len(w.t, reowned, 1)
	require.Equal(w.t, len(moved), number(w.t, reowned[0].Values["reowned"]))
	for _, i := range moved {
		w.stood(w.devices.IMEI(i), released)
	}
}

// stood: what an entry named at a time it has named ever since.
func (w *world) stood(imei string, since time.Time) {
	w.t.Helper()
	for _, s := range w.spells() {
		require.False(w.t, s.imei == imei && s.until.After(since), "entry %s no longer named %s at %v", imei, s.owner, s.until)
	}
}

// A registration is kept back by the network while its device goes elsewhere and registers there. It lands behind that one: the
// newer owner's entry stands again within an interval, at the device's next frame. givenUp: the former owner has given
// the registration up and looked after it before it lands. Half of the old sockets are closed by then, half never.
func lateRegistration(givenUp bool) func(w *world) {
	return func(w *world) {
		met := w.opens()
		former, next := w.fleet()[0], w.fleet()[1]
		ctx := w.t.Context()
		var which []int // those of the third
		for i := 2; i < w.devices.Len(); i += 3 {
			which = append(which, i)
		}
		answers := former.proxy.Answers(isRegister)
		caught, release := former.proxy.HoldNext(isRegister)
		defer release()
		back := w.away(former.id)
		require.NoError(w.t, w.devices.moveAll(ctx, which, func(int) *replica { return former }))
		request := nextOf(w.t, caught)
		require.NoError(w.t, w.devices.moveAll(ctx, which, func(int) *replica { return next }))
		var late []int
		for n, i := range which {
			if n%2 == 0 {
				w.devices.DropStale(i)
			}
			if slices.Contains(request, w.devices.IMEI(i)) {
				late = append(late, i)
			}
		}
		require.NotEmpty(w.t, late)
		w.registered(0)
		if givenUp {
			eventually(w.t, "the former owner gives up", func() bool {
				s, err := former.status()
				return err == nil && s.Registry.Failing["register"] != ""
			})
		}
		before := answers.Counts()["OK"]
		release()
		back()
		eventually(w.t, "the registration lands", func() bool { return answers.Counts()["OK"] > before })
		eventually(w.t, "the entries name where the devices are", func() bool {
			stands := true
			for _, i := range late {
				require.NoError(w.t, w.devices.report(ctx, i))
				stands = stands && w.HGet(ctx, w.Registry(), w.devices.IMEI(i)).Val() == next.id
			}
			return stands
		})
		w.ends()
		all := w.spells()
		for _, i := range late {
			imei := w.devices.IMEI(i)
			if landed := all.since(imei, former.id); !landed.IsZero() {
				met.hit(1)
				w.within("the entry stands again", all.since(imei, next.id).Sub(landed), interval)
			}
		}
		require.Positive(w.t, met.hits(), "nothing landed late: this run proves nothing")
		w.judge()
	}
}

// Devices hop among replicas and back while their old sockets stay open for many beats, some of them dead at the other end. However
// late those close, the entry names where the device is.
func oldSocketsCloseLate(w *world) {
	met := &calm{}
	w.fault = met
	for _, id := range []string{"one", "two", "three"} {
		w.start(id)
	}
	all := some(0, w.devices.Len())
	w.spread(all)
	w.registered(0)
	w.traffic.start(w.base) // of every second device; the others are ours
	var ours []int
	for i := 0; i < w.devices.Len(); i += 2 {
		ours = append(ours, i)
	}
	ctx := w.t.Context()
	for round := range 4 {
		to := make(map[int]*replica)
		for n, i := range ours {
			to[i] = w.fleet()[w.rnd.IntN(3)]
			if n%3 == 0 {
				w.devices.Device(i).HalfOpen() // its network is gone; it comes back from elsewhere
			}
		}
		require.NoError(w.t, w.devices.moveAll(ctx, ours, func(i int) *replica { return to[i] }))
		met.hit(len(ours)) // so many sockets are left behind
		for n, i := range ours {
			if (n+round)%2 == 0 {
				require.NoError(w.t, w.devices.report(ctx, i))
			}
		}
		w.named(ours)
		w.beats(1)
	}
	// Each beat looks at a tenth of what a replica believes to hold, those sockets among it.
	w.beats(3)
	w.named(ours)
	for n, i := range ours {
		switch n % 3 {
		case 0: // dead for good, noticed later
			w.devices.Device(i).HalfOpen()
		case 1:
			w.devices.DropStale(i)
		default: // moves once more just while they close
			go w.devices.DropStale(i)
			require.NoError(w.t, w.devices.move(ctx, i, w.fleet()[w.rnd.IntN(3)]))
		}
	}
	w.beats(2)
	w.named(ours)
	for n, i := range ours {
		if n%3 == 0 {
			w.devices.leaveAll([]int{i})
		}
	}
	w.moves()
	w.ends()
	v := w.judge()
	require.Zero(w.t, v.Evicted(""))
	require.GreaterOrEqual(w.t, w.traffic.done(), w.devices.Len()/2, "too little traffic: this run proves nothing")
	w.devices.leaveAll(all)
	v = w.judge()
	require.Zero(w.t, v.Evicted(""))
}

// named waits until the entries of some devices, which nobody else moves, name where they are.
func (w *world) named(which []int) {
	w.t.Helper()
	truth := w.truth()
	eventually(w.t, "the entries name where the devices are", func() bool {
		entries := w.HGetAll(w.t.Context(), w.Registry()).Val()
		for _, i := range which {
			if imei := w.devices.IMEI(i); entries[imei] != truth[imei] {
				return false
			}
		}
		return true
	})
}
