package harness

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// Settle ends faults and moves. Devices come back, and every socket is used once more, so that the
// truth is known.
func (w *Environment) Settle() {
	w.Helper()
	w.Traffic.Stop()
	p := pool.New().WithMaxGoroutines(16)
	var nowhere atomic.Int64
	for i := range w.Fleet.Len() {
		p.Go(func() {
			w.Fleet.DropStale(i)
			if !Becomes(func() bool {
				if w.Fleet.At(i) == "" {
					fleet := w.Replicas()
					_ = w.Fleet.Connect(w.Context(), i, fleet[i%len(fleet)]) // retried
				}
				return w.Fleet.Send(w.Context(), i) == nil
			}) {
				nowhere.Add(1)
			}
			w.Fleet.DropStale(i)
		})
	}
	p.Wait()
	require.Zero(w, nowhere.Load(), "devices that could not come back: the truth would be without them")
}

// Claimed records a device of one of the scenario's own registries.
func (w *Environment) Claimed(imei, instance string) {
	w.claims[imei] = instance
	w.Fleet.mu.Lock()
	defer w.Fleet.mu.Unlock()
	w.Fleet.sockets = append(w.Fleet.sockets, judge.Socket{IMEI: imei, Instance: instance, Live: time.Now()})
}

// Truth maps each device to its instance.
func (w *Environment) Truth() map[string]string {
	live := w.Fleet.Live()
	maps.Copy(live, w.claims)
	return live
}

// Registered waits until each device's entry names its instance, with at most others beside them.
func (w *Environment) Registered(others int) {
	w.Helper()
	truth := w.Truth()
	Eventually(w, "each entry names where its device is", func() bool {
		entries := w.HGetAll(w.Context(), w.Registry()).Val()
		for imei, id := range truth {
			if entries[imei] != id {
				return false
			}
		}
		return len(entries) <= len(truth)+others
	})
}

// Agrees asks for sizes first, as it is called often.
func (w *Environment) Agrees(truth map[string]string, alive []string) bool {
	ctx := w.Context()
	held := make(map[string]int64)
	for _, id := range truth {
		if !w.Unindexed() {
			held[id]++
		}
	}
	for _, id := range alive {
		if w.SCard(ctx, w.Layout.Devices(id)).Val() != held[id] || w.Exists(ctx, w.Heartbeat(id)).Val() == 0 {
			return false
		}
	}
	if w.SCard(ctx, w.Roster()).Val() != int64(len(alive)) ||
		w.HLen(ctx, w.Registry()).Val() != int64(len(truth)) ||
		!maps.Equal(w.HGetAll(ctx, w.Registry()).Val(), truth) {
		return false
	}
	for _, id := range alive {
		for _, imei := range w.SMembers(ctx, w.Layout.Devices(id)).Val() {
			if truth[imei] != id {
				return false
			}
		}
	}
	return true
}

// Alive returns running replicas, and others that the scenario knows.
func (w *Environment) Alive(also []string) []string {
	ids := append([]string{}, also...)
	for _, r := range w.Replicas() {
		ids = append(ids, r.ID)
	}
	return ids
}

// ClosedByTheRunning returns what replicas closed by themselves: a fleet that closed all sockets
// without entries would always end up at the truth.
func (w *Environment) ClosedByTheRunning() (which []judge.Socket) {
	lives := make(map[string]int)
	for _, r := range w.All {
		lives[r.ID]++
	}
	return w.Fleet.closedBy(slices.DeleteFunc(w.Alive(nil), func(id string) bool { return lives[id] > 1 }))
}

// Unindexed replicas keep no index.
func (w *Environment) Unindexed() bool { return w.Settings["REGISTRY_REVERSE_INDEX"] == "false" }

func (w *Environment) set(name string) time.Duration {
	d, err := time.ParseDuration(w.Settings[name])
	require.NoError(w, err)
	return d
}

// Facts are for the judge. alive is nil if the run has not come to rest.
func (w *Environment) Facts(alive []string) judge.Facts {
	var f judge.Facts
	w.tells(func(told *judge.Facts) {
		f = *told
		f.Outages, f.Settings = slices.Clone(f.Outages), slices.Clone(f.Settings) // changed below
	})
	f.LeaseTTL, f.JanitorInterval = w.set("JANITOR_LEASE_TTL"), w.set("JANITOR_INTERVAL")
	f.Unindexed = w.Unindexed()
	if w.Settings["JANITOR_REDIS_SHARE"] != "" { // a pass is slowed down so that faults hit it midway
		f.Sweeping = Patience / 2
	}
	f.Slack = w.Slack
	f.Sockets, f.Acks = w.Fleet.History()
	if f.Alive = alive; alive != nil {
		f.Truth = w.Truth()
	}
	return f
}
