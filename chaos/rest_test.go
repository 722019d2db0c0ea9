package chaos

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/harness"
	"github.com/rollcall-redis/rollcall/chaos/history"
	"github.com/rollcall-redis/rollcall/chaos/judge"
)

// judgeRejects is said before each violation.
const judgeRejects = "the judge rejects:"

// ends begins the second phase: no more faults, no more moves.
func (w *environment) ends() {
	w.Helper()
	w.over = time.Now()
	w.Settle()
}

// opens is how rows of one fault begin: three replicas, every device at one of them, everything at
// rest. What is met counts.
func (w *environment) opens() (met *calm) {
	w.Helper()
	met = &calm{}
	w.fault = met
	w.Start("one", "two", "three")
	w.Spread(harness.Some(0, w.Fleet.Len()))
	w.rest()
	return met
}

// rest waits until the registry is the truth, every live socket and nothing else, and roster and
// indexes agree.
func (w *environment) rest(also ...string) {
	w.Helper()
	truth, alive := w.Truth(), w.Alive(also)
	const what = "the registry is the truth"
	if !harness.Becomes(func() bool { return w.Agrees(truth, alive) }) {
		w.verdict(alive)
		require.Fail(w, "waited in vain until "+what)
	}
}

// judge waits until things have come to rest, and applies every check to the history, C7 among
// them: faults have stopped. also are instances that live besides the replicas.
func (w *environment) judge(also ...string) *judge.Verdict {
	w.Helper()
	w.rest(also...)
	v := w.verdict(w.Alive(also))
	require.False(w, w.Failed())
	for _, r := range w.Replicas() {
		w.counts(r, v)
	}
	w.Logf("%d sockets closed by replicas that run", len(w.ClosedByTheRunning()))
	return v
}

// verdict judges the history as it is, and fails the test for what it finds.
func (w *environment) verdict(alive []string) *judge.Verdict {
	w.Helper()
	entries := w.entries()
	h := w.History()
	f := w.Facts(alive)
	w.evidence = &f
	v := judge.Judge(h, f)
	found := slices.Concat(v.Violations, v.Settled())
	for i, violation := range found {
		if i == 20 {
			w.Errorf("and %d more", len(found)-i)
			break
		}
		w.Error(judgeRejects, violation)
	}
	// What the judge relies on: at rest, the model is what the server holds.
	if len(found) == 0 && len(entries)+len(v.Final.Hashes[w.Registry()]) > 0 {
		require.True(w, maps.Equal(entries, v.Final.Hashes[w.Registry()]), "model and server differ")
	}
	w.Logf("%d events, %d sockets, %d terms, %d evictions in %d batches, %d false deaths",
		len(h), len(f.Sockets), len(v.Terms), v.Evicted(""), len(v.Batches), v.FalseDeaths)
	w.note(v)
	return v
}

// autopsy judges what failed before it came to be judged: what the history shows may be why. It is
// not at rest.
func (w *environment) autopsy() {
	h, err := history.Read(w.Parts...)
	if err != nil {
		w.Logf("the history cannot be read: %v", err)
		return
	}
	v := judge.Judge(h, w.Facts(nil))
	for _, violation := range v.Violations[:min(20, len(v.Violations))] {
		w.T.Log(judgeRejects, violation)
	}
	w.note(v)
}

// finish is called when the scenario is over: its row goes into the report, and a failing run keeps
// its files.
func (w *environment) finish() {
	w.Traffic.Stop()
	w.result.failed = w.Failed()
	if w.result.failed && w.result.scenario == "" {
		w.autopsy()
	}
	if w.evidence == nil { // nothing came to rest
		f := w.Facts(nil)
		w.evidence = &f
	}
	w.Fleet.Close()
	report(w.result)
	if !w.Failed() && os.Getenv("ROLLCALL_KEEP") == "" {
		return
	}
	dir, err := filepath.Abs(filepath.Join(cmp.Or(os.Getenv(harness.KeptRuns), filepath.Join("..", ".cache", "chaos")), filepath.Base(w.Name())))
	require.NoError(w, err)
	if err := judge.Save(dir, *w.evidence, w.Parts...); err != nil {
		w.Logf("the run's files are not kept: %v", err)
		return
	}
	w.Logf("to judge this run again: go run ./chaos/rejudge %s", dir)
}

// counts is the other half of C5: a process' own counter is exact while it lives, once it knows the
// fate of its batches.
func (w *environment) counts(r *harness.Replica, v *judge.Verdict) {
	w.Helper()
	lives := 0
	for _, other := range w.All {
		if other.ID == r.ID {
			lives++
		}
	}
	if lives > 1 || r.Born.Before(w.Forgot) {
		// H does not tell the lives of an id apart, nor can a process ask for the fate of a batch that
		// was forgotten
		return
	}
	want := float64(v.EvictedBy(r.ID))
	var got float64
	if harness.Becomes(func() bool {
		s, err := r.Status()
		if err != nil || s.Janitor.Unsettled > 0 {
			return false
		}
		got, err = r.Metric("teltonika_registry_janitor_evicted_total")
		return err == nil && got == want
	}) {
		return
	}
	require.Fail(w, judgeRejects+" C5", "replica %s evicted %v in H and says %v", r.ID, want, got)
}
