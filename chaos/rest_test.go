package chaos

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// ends begins the second phase: no more faults, no more moves.
func (w *world) ends() {
	w.t.Helper()
	w.over = time.Now()
	w.settle()
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
	w.noting.Lock()
	w.result.Violations = map[string]int{"C5": 1} // it was called because there were no others
	w.result.FirstAfter, w.result.FirstEvictions = time.Since(w.began), v.Evicted("")
	w.noting.Unlock()
	require.Fail(w.t, "C5", "replica %s evicted %v in H and says %v", r.id, want, got)
}
