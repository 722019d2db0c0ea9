package chaos

import (
	"fmt"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// massRows: most owners fall silent at once, which is rather the fault of who listens, and the
// leader that has known them goes too. There is no reverse index, and perhaps no roster: the new
// leader meets them in its first full scan.
var massRows = []row{
	{34, "FiveOfSevenSilentAndUnindexed", false, 20, rareFullScans, fiveOfSevenSilent(embeddedOwner)},
	{34, "FiveOfSevenSilentOldWriters", false, 20, rareFullScans, fiveOfSevenSilent(olderWriter)},
}

// rareFullScans leave time for the quick way alone to look at the silent.
var rareFullScans = map[string]string{"REGISTRY_REVERSE_INDEX": "false", "JANITOR_INTERVAL": "20s"}

// owned is how many devices each of these owners has.
const owned = 10

// mutable is an owner that can fall silent.
type mutable struct {
	id      string
	silence func() (speaks func())
}

// imeisOf are the devices of owner n of a scenario.
func imeisOf(n int) (imeis []string) {
	for i := range owned {
		imeis = append(imeis, fmt.Sprintf("84%06d%07d", n, i))
	}
	return imeis
}

// embeddedOwner is a registry in this process, whose proxy can be held.
func embeddedOwner(w *environment, n int) mutable {
	id, l := fmt.Sprintf("owner-%d", n), w.Proxy()
	r := w.embedAt(id, l.Addr())
	for _, imei := range imeisOf(n) {
		require.NoError(w.T, r.Register(w.T.Context(), imei).Wait(w.T.Context()))
		w.Claims[imei] = id
		w.Fleet.Claimed(imei, id)
	}
	return mutable{id, func() func() { return l.Hold().End }}
}

// olderWriter is an owner of an older version: it writes entries and a heartbeat, and nothing else.
// It does not heal.
func olderWriter(w *environment, n int) mutable {
	ctx, id := w.T.Context(), fmt.Sprintf("older-%d", n)
	w.Planted[id] = true
	beat := func() { // without a boot token
		require.NoError(w.T, w.Set(ctx, w.Heartbeat(id), strconv.FormatInt(time.Now().UnixMilli(), 10), harness.TTL).Err())
	}
	write := func() {
		beat()
		for _, imei := range imeisOf(n) {
			require.NoError(w.T, w.HSet(ctx, w.Registry(), imei, id).Err())
		}
	}
	write()
	for _, imei := range imeisOf(n) {
		w.Claims[imei] = id
		w.Fleet.Claimed(imei, id)
	}
	beats := func() (stop func()) {
		stopped, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			tick := time.NewTicker(harness.Interval)
			defer tick.Stop()
			for {
				select {
				case <-stopped:
					return
				case <-tick.C:
					_ = w.Set(ctx, w.Heartbeat(id), strconv.FormatInt(time.Now().UnixMilli(), 10), harness.TTL).Err()
				}
			}
		}()
		return func() { close(stopped); <-ended }
	}
	stop := beats()
	w.T.Cleanup(func() { stop() })
	return mutable{id, func() func() {
		stop()
		return func() { // its devices come again too: what it has lost nobody puts back
			write()
			stop = beats()
		}
	}}
}

// fiveOfSevenSilent: four of five owners are cut off, and the leader is killed. What is left are a
// replica, which will lead, and an owner. The four come back when the new leader has had time for a
// full scan.
func fiveOfSevenSilent(kind func(w *environment, n int) mutable) func(w *environment) {
	return func(w *environment) {
		met := &calm{}
		w.fault = met
		var owners []mutable
		w.StartAll("one", "two")
		for n := range 5 {
			owners = append(owners, kind(w, n))
		}
		w.Spread(harness.Some(0, w.Fleet.Len()))
		var ids []string
		for _, o := range owners {
			if !w.Planted[o.id] {
				ids = append(ids, o.id)
			}
		}
		w.rest(ids...)
		w.Listened()
		w.sweeps(time.Now())
		leader := w.Leader() // which has just had a full scan: the next comes when it has gone
		var speak []func()
		for _, o := range owners[:4] {
			back, speaks := w.Outage(o.id), o.silence()
			speak = append(speak, func() { speaks(); back() })
		}
		silent := func() (n int) {
			for _, o := range owners[:4] {
				n += 1 - int(w.Exists(w.T.Context(), w.Heartbeat(o.id)).Val())
			}
			return n
		}
		harness.Eventually(w.T, "they are silent", func() bool { return silent() == 4 })
		harness.Lasting(time.Second) // the quick way has looked at them
		_, lost := w.Kill(leader)
		w.Spread(lost)
		w.succeeded(leader)
		met.hit(silent())
		harness.Lasting(harness.JanitorInterval / 2) // the new one's first full scan
		for _, s := range speak {
			s()
		}
		v := w.judge(ids...)
		for _, o := range owners {
			require.Zero(w.T, v.Evicted(o.id), o.id)
		}
		require.Contains(w.T, reasonsOf(v), "mass_failure")
	}
}

// reasonsOf are those for which the witness has doubted.
func reasonsOf(v *judge.Verdict) (all []string) {
	for _, d := range v.Doubts {
		all = append(all, d.Reason)
	}
	return all
}
