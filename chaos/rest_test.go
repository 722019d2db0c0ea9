package chaos

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// ends begins the second phase: no more faults, no more moves. Every device that lost its socket comes back, and every socket
// has been used once more, so that the truth is known.
func (w *world) ends() {
	w.t.Helper()
	w.mu.Lock()
	w.over = time.Now()
	w.mu.Unlock()
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
	w.comes("each entry names where its device is", func() bool {
		entries := w.HGetAll(w.t.Context(), w.Registry()).Val()
		for imei, id := range truth {
			if entries[imei] != id {
				return false
			}
		}
		return len(entries) <= len(truth)+others
	})
}

// opens is how stories of one fault begin: three replicas, every device at one of them, everything at rest. What is met counts.
func (w *world) opens() (met *calm) {
	w.t.Helper()
	met = &calm{}
	w.fault = met
	for _, id := range []string{"one", "two", "three"} {
		w.start(id)
	}
	w.spread(some(0, w.devices.Len()))
	w.rest()
	return met
}

// rest waits until the registry is the truth, every live socket and nothing else, and roster and indexes agree.
func (w *world) rest(also ...string) {
	w.t.Helper()
	truth, alive := w.truth(), w.alive(also)
	const what = "the registry is the truth"
	if !becomes(func() bool { return w.agrees(truth, alive) }) {
		w.verdict(alive)
		require.Fail(w.t, "waited in vain until "+what)
	}
}

// comes waits for what must come. If it does not the history says why, all but C7: in the middle of a fault nothing is at rest, and
// what C7 would find says nothing of what was waited for.
func (w *world) comes(what string, cond func() bool) {
	w.t.Helper()
	eventually(w.t, what, cond) // see autopsy
}

// agrees asks for sizes first: it is asked often, and entries may be many.
func (w *world) agrees(truth map[string]string, alive []string) bool {
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
func (w *world) alive(also []string) []string {
	ids := slices.Clone(also)
	for _, r := range w.fleet() {
		ids = append(ids, r.id)
	}
	return ids
}

// judge waits until things have come to rest, and applies every check to the history, C7 among them: faults have
// stopped. also are instances that live besides the replicas.
func (w *world) judge(also ...string) *judge.Verdict {
	w.t.Helper()
	w.rest(also...)
	v := w.verdict(w.alive(also))
	require.False(w.t, w.t.Failed())
	for _, r := range w.fleet() {
		w.counts(r, v)
	}
	w.t.Logf("%d sockets closed by replicas that run", len(w.closedByTheRunning()))
	return v
}

// closedByTheRunning are sockets of devices that a replica has closed of itself which runs to the end. A fleet that closes the sockets whose
// entries it has lost would always come to rest at the truth.
func (w *world) closedByTheRunning() (which []judge.Socket) {
	lives := make(map[string]int)
	for _, r := range w.all {
		lives[r.id]++
	}
	running := w.alive(nil)
	w.devices.mu.Lock()
	defer w.devices.mu.Unlock()
	for _, s := range w.devices.closed {
		if lives[s.Instance] == 1 && slices.Contains(running, s.Instance) {
			which = append(which, s)
		}
	}
	return which
}

// sweeping is how long a pass may take that is slowed down to be hit in its middle: on a busy machine, where calls take ten
// times as long, so do the rests between them.
func (w *world) sweeping() time.Duration {
	if w.settings["JANITOR_REDIS_SHARE"] == "" {
		return 0
	}
	return patience / 2
}

// unindexed: the replicas keep no index.
func (w *world) unindexed() bool { return w.settings["REGISTRY_REVERSE_INDEX"] == "false" }

// set is a duration as the replicas were set.
func (w *world) set(name string) time.Duration {
	d, err := time.ParseDuration(w.settings[name])
	require.NoError(w.t, err)
	return d
}

// facts is what this world knows and Redis does not.
func (w *world) facts(alive []string) judge.Facts {
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

// verdict judges the history as it is, and fails the test for what it finds.
func (w *world) verdict(alive []string) *judge.Verdict {
	w.t.Helper()
	entries := w.HGetAll(w.t.Context(), w.Registry()).Val()
	if w.stream != nil {
		require.NoError(w.t, w.stream.Caught(w.t.Context()))
	}
	h, err := history.Read(w.parts...)
	require.NoError(w.t, err)
	f := w.facts(alive)
	w.evidence = &f
	v := judge.Judge(h, f)
	found := slices.Concat(v.Violations, v.Settled())
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
		len(h), len(f.Sockets), len(v.Terms), v.Evicted(""), len(v.Batches), v.FalseDeaths)
	w.note(v, found)
	return v
}

// autopsy judges what failed before it came to be judged: what the history shows may be why. It is not at rest.
func (w *world) autopsy() {
	h, err := history.Read(w.parts...)
	if err != nil {
		w.t.Logf("the history cannot be read: %v", err)
		return
	}
	f := w.facts(nil)
	f.Truth = nil
	v := judge.Judge(h, f)
	for _, violation := range v.Violations[:min(20, len(v.Violations))] {
		w.t.Log(violation)
	}
	w.note(v, v.Violations)
}

// keptRuns names the folder in which a failing run keeps its files; .cache/chaos if it is not set.
const keptRuns = "ROLLCALL_RUNS"

// finish is called when the scenario is over: its row goes into the report, and a failing run keeps its files.
func (w *world) finish() {
	w.traffic.stop()
	w.result.Failed = w.t.Failed()
	if w.result.Failed && w.result.Scenario == "" {
		w.autopsy()
	}
	if w.evidence == nil { // nothing came to rest
		f := w.facts(w.alive(nil))
		f.Truth = nil
		w.evidence = &f
	}
	w.devices.CloseAll()
	report(w.result)
	if !w.t.Failed() && os.Getenv("ROLLCALL_KEEP") == "" {
		return
	}
	dir, err := filepath.Abs(filepath.Join(cmp.Or(os.Getenv(keptRuns), filepath.Join("..", ".cache", "chaos")), filepath.Base(w.t.Name())))
	require.NoError(w.t, err)
	if err := judge.Save(dir, *w.evidence, w.parts...); err != nil {
		w.t.Logf("the run's files are not kept: %v", err)
		return
	}
	w.t.Logf("to judge this run again: go run ./chaos/rejudge %s", dir)
}

// counts is the other half of C5: a process' own counter is exact while it lives, once it knows the fate of its batches.
func (w *world) counts(r *replica, v *judge.Verdict) {
	w.t.Helper()
	lives := 0
	for _, other := range w.all {
		if other.id == r.id {
			lives++
		}
	}
	if lives > 1 || r.born.Before(w.forgot) {
		return // H does not tell the lives of an id apart, nor can a process ask for the fate of a batch that was forgotten
	}
	want := float64(v.EvictedBy(r.id))
	var got float64
	if becomes(func() bool {
		s, err := r.status()
		if err != nil || s.Janitor.Unsettled > 0 {
			return false
		}
		got, err = r.metric("teltonika_registry_janitor_evicted_total")
		return err == nil && got == want
	}) {
		return
	}
	w.mu.Lock()
	w.result.Violations = map[string]int{"C5": 1} // it was called because there were no others
	w.result.FirstAfter, w.result.FirstEvictions = time.Since(w.began), v.Evicted("")
	w.mu.Unlock()
	require.Fail(w.t, "C5", "replica %s evicted %v in H and says %v", r.id, want, got)
}
