package chaos

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// settle begins the second phase: no more faults, no more moves. Every device that lost its socket comes back, and every socket
// has been used once more, so that the truth is known.
func (w *base) settle() {
	w.t.Helper()
	w.traffic.stop()
	p := pool.New().WithMaxGoroutines(16)
	var nowhere atomic.Int64
	for i := range w.devices.Len() {
		p.Go(func() {
			w.devices.DropStale(i)
			if !becomes(func() bool {
				if w.devices.at(i) == "" {
					fleet := w.fleet()
					_ = w.devices.move(w.t.Context(), i, fleet[i%len(fleet)]) // tried again
				}
				return w.devices.report(w.t.Context(), i) == nil
			}) {
				nowhere.Add(1)
			}
			w.devices.DropStale(i)
		})
	}
	p.Wait()
	require.Zero(w.t, nowhere.Load(), "devices that could not come back: the truth would be without them")
}

// truth is who holds each device now.
func (w *base) truth() map[string]string {
	live := w.devices.live()
	maps.Copy(live, w.claims)
	return live
}

// registered waits until each device's entry names where it is, and at most so many other entries are there. Indexes may
// still have sockets that devices have left open.
func (w *base) registered(others int) {
	w.t.Helper()
	truth := w.truth()
	eventually(w.t, "each entry names where its device is", func() bool {
		entries := w.HGetAll(w.t.Context(), w.Registry()).Val()
		for imei, id := range truth {
			if entries[imei] != id {
				return false
			}
		}
		return len(entries) <= len(truth)+others
	})
}

// agrees asks for sizes first: it is asked often, and entries may be many.
func (w *base) agrees(truth map[string]string, alive []string) bool {
	ctx := w.t.Context()
	held := make(map[string]int64)
	for _, id := range truth {
		if !w.unindexed() {
			held[id]++
		}
	}
	for _, id := range alive {
		if w.SCard(ctx, w.Layout.Devices(id)).Val() != held[id] {
			return false
		}
	}
	if w.SCard(ctx, w.Roster()).Val() != int64(len(alive)) || w.HLen(ctx, w.Registry()).Val() != int64(len(truth)) ||
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

// alive are the running replicas, and others that the scenario knows of.
func (w *base) alive(also []string) []string {
	ids := slices.Clone(also)
	for _, r := range w.fleet() {
		ids = append(ids, r.id)
	}
	return ids
}

// closedByTheRunning are sockets of devices that a replica has closed of itself which runs to the end. A fleet that closes the sockets whose
// entries it has lost would always come to rest at the truth.
func (w *base) closedByTheRunning() (which []judge.Socket) {
	lives := make(map[string]int)
	for _, r := range w.all {
		lives[r.id]++
	}
	return w.devices.closedBy(slices.DeleteFunc(w.alive(nil), func(id string) bool { return lives[id] > 1 }))
}

// sweeping is how long a pass may take that is slowed down to be hit in its middle: on a busy machine, where calls take ten
// times as long, so do the rests between them.
func (w *base) sweeping() time.Duration {
	if w.settings["JANITOR_REDIS_SHARE"] == "" {
		return 0
	}
	return patience / 2
}

// unindexed: the replicas keep no index.
func (w *base) unindexed() bool { return w.settings["REGISTRY_REVERSE_INDEX"] == "false" }

// set is a duration as the replicas were set.
func (w *base) set(name string) time.Duration {
	d, err := time.ParseDuration(w.settings[name])
	require.NoError(w.t, err)
	return d
}

// facts is what this world knows and Redis does not.
func (w *base) facts(alive []string) judge.Facts {
	truth := w.truth()
	sockets, acks := w.devices.history()
	w.mu.Lock()
	defer w.mu.Unlock()
	return judge.Facts{
		HeartbeatInterval: interval, HeartbeatTTL: ttl, LeaseTTL: w.set("JANITOR_LEASE_TTL"), JanitorInterval: w.set("JANITOR_INTERVAL"), Slack: w.slack, Sweeping: w.sweeping(), Unindexed: w.unindexed(),
		Sockets: sockets, Planted: w.planted, Outages: w.outages, Deaths: w.deaths, Restarts: w.restarts, Settings: w.odd,
		Lookups: w.lookups, Acks: acks, Executed: w.executed, Truth: truth, Alive: alive,
	}
}
