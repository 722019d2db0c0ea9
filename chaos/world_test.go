package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
	"github.com/rollcall-redis/rollcall/registry"
)

// Durations, scaled down so that a scenario takes seconds, and no further: on a busy machine a process may not run
// for a second or two, and a heartbeat that is late by that must not be a death.
const (
	interval      = 2 * time.Second
	ttl           = 6 * time.Second
	warm          = ttl + 2*time.Second
	janitorEvery  = 3 * time.Second
	leaseTTL      = 3 * time.Second
	leaseRetry    = leaseTTL / 5 * 12 / 10
	busy          = 3 * time.Second  // what a busy machine may add to a bound
	patience      = 60 * time.Second // for what has no bound but must come
	patiencePause = 20 * time.Millisecond
)

// becomes polls until cond is true; false if patience is over.
func becomes(cond func() bool) bool {
	tick := time.NewTicker(patiencePause)
	defer tick.Stop()
	for late := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(late) {
			return false
		}
	}
	return true
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.True(t, becomes(cond), "waited in vain until %s", what)
}

// world is what a scenario has: a Redis that writes its history, replicas, devices.
type world struct {
	*redis.Client
	registry.Layout
	t        *testing.T
	server   *redistest.Server
	binary   string
	settings map[string]string
	replicas []*replica // that run, or are stopped
	devices  *devices
	claims   map[string]string // held by registries of the scenario itself: IMEI -> instance
	planted  map[string]bool
}

func newWorld(t *testing.T, binary string, devices int, settings map[string]string) *world {
	server := redistest.Start(t, append(AppendOnly(), "--notify-keyspace-events", "K$g")...)
	w := &world{
		Client: server.Client(), t: t, server: server, binary: binary, devices: newDevices(devices),
		claims: make(map[string]string), planted: make(map[string]bool),
		settings: map[string]string{
			"REDIS_URL": "redis://" + server.Addr(), "HTTP_ADDR": "127.0.0.1:0", "INGEST_ADDR": "127.0.0.1:0", "LOG_FORMAT": "json",
			"HEARTBEAT_INTERVAL": interval.String(), "HEARTBEAT_TTL": ttl.String(),
			"JANITOR_INTERVAL": janitorEvery.String(), "JANITOR_LEASE_TTL": leaseTTL.String(),
		},
	}
	maps.Copy(w.settings, settings)
	t.Cleanup(w.devices.CloseAll)
	return w
}

// start starts a replica and waits until it is ready.
func (w *world) start(id string) *replica {
	w.t.Helper()
	r := launch(w.t, w.binary, id, w.settings)
	r.ready()
	w.replicas = append(w.replicas, r)
	return r
}

// gone notes that a replica does not run any more.
func (w *world) gone(r *replica) {
	for i := range w.replicas {
		if w.replicas[i] == r {
			w.replicas = slices.Delete(slices.Clone(w.replicas), i, i+1)
			return
		}
	}
}

// kill kills a replica and returns when, and the devices whose sockets went with it.
func (w *world) kill(r *replica) (at time.Time, lost []int) {
	w.devices.losing(r)
	at = time.Now()
	r.kill()
	w.gone(r)
	return at, w.devices.lost(r)
}

// spread connects devices to the running replicas by turns.
func (w *world) spread(which []int) {
	w.t.Helper()
	require.NoError(w.t, w.devices.moveAll(w.t.Context(), which, func(i int) *replica { return w.replicas[i%len(w.replicas)] }))
}

// leader waits until one of the running replicas holds the lease, and returns it.
func (w *world) leader() (leader *replica) {
	w.t.Helper()
	eventually(w.t, "a running replica leads", func() bool {
		leader = nil
		holder := w.holder()
		for _, r := range w.replicas {
			if r.id == holder {
				leader = r
			}
		}
		return leader != nil
	})
	return leader
}

// holder is the instance that has the lease, "" if it is free.
func (w *world) holder() string {
	id, _, _ := strings.Cut(w.Get(w.t.Context(), w.Lease()).Val(), "/")
	return id
}

// listened waits until the witness has been heard for long enough that deletes may begin.
func (w *world) listened() {
	w.t.Helper()
	eventually(w.t, "the witness has listened for WARM", func() bool {
		s, err := w.leader().status()
		return err == nil && s.Janitor.Leading && !s.Janitor.Witness.LastTick.IsZero() && s.Janitor.Witness.WarmIn == 0
	})
}

// plant writes entries of an owner that has no process, plainly, as an older writer does; indexed: and registers them in its
// index and on the roster. It returns the IMEIs.
func (w *world) plant(owner string, n int, indexed bool) (imeis []string) {
	w.t.Helper()
	w.planted[owner] = true
	ctx := w.t.Context()
	const page = 1000
	for from := 0; from < n; from += page {
		var pairs, members []any
		for i := from; i < min(n, from+page); i++ {
			imei := fmt.Sprintf("86%013d", i)
			imeis = append(imeis, imei)
			pairs = append(pairs, imei, owner)
			members = append(members, imei)
		}
		_, err := w.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.HSet(ctx, w.Registry(), pairs...)
			if indexed {
				p.SAdd(ctx, w.Devices(owner), members...)
				p.SAdd(ctx, w.Roster(), owner)
			}
			return nil
		})
		require.NoError(w.t, err)
	}
	return imeis
}

// inPass waits until the leader is in the middle of evicting: after n batches of its term.
func (w *world) inPass(n int64) {
	w.t.Helper()
	before := w.XLen(w.t.Context(), w.Audit()).Val()
	eventually(w.t, "a pass is under way", func() bool { return w.XLen(w.t.Context(), w.Audit()).Val() >= before+n })
}

// truth is who holds each device now.
func (w *world) truth() map[string]string {
	live := w.devices.live()
	maps.Copy(live, w.claims)
	return live
}

// registered waits until each device's entry names where it is, and at most so many other entries are there. Indexes may
// still have sockets that devices have left open.
func (w *world) registered(others int) {
	w.t.Helper()
	truth := w.truth()
	w.comes("each entry names where its device is", nil, func() bool {
		entries := w.HGetAll(w.t.Context(), w.Registry()).Val()
		for imei, id := range truth {
			if entries[imei] != id {
				return false
			}
		}
		return len(entries) <= len(truth)+others
	})
}

// rest waits until the registry is the truth, every live socket and nothing else, and roster and indexes agree.
func (w *world) rest(also ...string) {
	w.t.Helper()
	truth, alive := w.truth(), w.alive(also)
	w.comes("the registry is the truth", also, func() bool { return w.agrees(truth, alive) })
}

// comes waits for what must come. If it does not the history says why.
func (w *world) comes(what string, also []string, cond func() bool) {
	w.t.Helper()
	if !becomes(cond) {
		w.verdict(w.alive(also))
		require.Fail(w.t, "waited in vain until "+what)
	}
}

// agrees asks for sizes first: it is asked often, and entries may be many.
func (w *world) agrees(truth map[string]string, alive []string) bool {
	ctx := w.t.Context()
	held := make(map[string]int64)
	for _, id := range truth {
		held[id]++
	}
	for _, id := range alive {
		if w.SCard(ctx, w.Layout.Devices(id)).Val() != held[id] {
			return false
		}
	}
	return w.SCard(ctx, w.Roster()).Val() == int64(len(alive)) &&
		w.HLen(ctx, w.Registry()).Val() == int64(len(truth)) &&
		maps.Equal(w.HGetAll(ctx, w.Registry()).Val(), truth)
}

// alive are the running replicas, and others that the scenario knows of.
func (w *world) alive(also []string) []string {
	ids := slices.Clone(also)
	for _, r := range w.replicas {
		ids = append(ids, r.id)
	}
	return ids
}

// beats waits until every running replica has beaten n times.
func (w *world) beats(n int) {
	w.t.Helper()
	for _, r := range w.replicas {
		var last time.Time
		for left := n; left >= 0; left-- { // the first is the one that was before
			eventually(w.t, "replica "+r.id+" beats", func() bool {
				s, err := r.status()
				if err != nil || s.Registry.LastBeat.Equal(last) {
					return false
				}
				last = s.Registry.LastBeat
				return true
			})
		}
		n = min(n, 1) // meanwhile the others have beaten as often
	}
}

// oneLeads waits until exactly one of the running replicas says that it leads, and it is the holder of the lease.
func (w *world) oneLeads() *replica {
	w.t.Helper()
	var leader *replica
	eventually(w.t, "exactly one replica leads", func() bool {
		leader = nil
		holder, leaders := w.holder(), 0.0
		for _, r := range w.replicas {
			says, err := r.metric("janitor_leader")
			if err != nil {
				return false
			}
			leaders += says
			if says == 1 && r.id == holder {
				leader = r
			}
		}
		return leaders == 1 && leader != nil
	})
	return leader
}

// judge waits until things have come to rest, and applies every check to the history, C7 among them: faults have
// stopped. also are instances that live besides the replicas.
func (w *world) judge(also ...string) *Verdict {
	w.t.Helper()
	w.rest(also...)
	v := w.verdict(w.alive(also))
	require.False(w.t, w.t.Failed())
	for _, r := range w.replicas {
		w.counts(r, v)
	}
	return v
}

// verdict judges the history as it is, and fails the test for what it finds.
func (w *world) verdict(alive []string) *Verdict {
	w.t.Helper()
	entries := w.HGetAll(w.t.Context(), w.Registry()).Val()
	h, err := ReadAppendOnly(w.server.Dir())
	require.NoError(w.t, err)
	v := Judge(h, Facts{
		HeartbeatInterval: interval, HeartbeatTTL: ttl, LeaseTTL: leaseTTL, Sockets: w.devices.history(), Planted: w.planted,
	})
	found := append(v.Violations, v.Converged(w.truth(), alive...)...)
	for i, violation := range found {
		if i == 20 {
			w.t.Errorf("and %d more", len(found)-i)
			break
		}
		w.t.Error(violation)
	}
	// What the judge relies on: at rest, the model is what the server holds.
	if len(found) == 0 && len(entries)+len(v.Final.Hashes[w.Registry()]) > 0 {
		require.True(w.t, maps.Equal(entries, v.Final.Hashes[w.Registry()]), "model and server differ")
	}
	w.t.Logf("%d events, %d sockets, %d terms, %d evictions in %d batches, %d false deaths",
		len(h), len(w.devices.history()), len(v.Terms), v.Evicted(""), len(v.Batches), v.FalseDeaths)
	return v
}

// counts is the other half of C5: a process' own counter is exact while it lives, once it knows the fate of its batches.
func (w *world) counts(r *replica, v *Verdict) {
	w.t.Helper()
	want := float64(v.EvictedBy(r.id))
	var got float64
	require.True(w.t, becomes(func() bool {
		s, err := r.status()
		if err != nil || s.Janitor.Unsettled > 0 {
			return false
		}
		got, err = r.metric("teltonika_registry_janitor_evicted_total")
		return err == nil && got == want
	}), "C5: replica %s evicted %v in H and says %v", r.id, want, got)
}
