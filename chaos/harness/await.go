package harness

import (
	"context"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
)

// Test is what helpers need of a test, or of what embeds one.
type Test interface {
	require.TestingT
	Helper()
	Context() context.Context
}

// Becomes polls cond, and returns false after Patience.
func Becomes(cond func() bool) bool { return waittest.Becomes(PatiencePause, cond) }

// Eventually fails the test after Patience.
func Eventually(t Test, what string, cond func() bool) {
	t.Helper()
	require.True(t, Becomes(cond), "waited in vain until %s", what)
}

// Lasting waits while a fault lasts.
func Lasting(d time.Duration) { <-time.After(d) }

// Leader waits until a running replica holds the lease.
func (w *Environment) Leader() (leader *Replica) {
	w.Helper()
	Eventually(w, "a running replica leads", func() bool {
		leader = w.running(w.Holder())
		return leader != nil
	})
	return leader
}

// OneLeads waits until exactly one running replica reports that it leads, and holds the lease.
func (w *Environment) OneLeads() *Replica {
	w.Helper()
	var leader *Replica
	Eventually(w, "exactly one replica leads", func() bool {
		leader = nil
		holder, leaders := w.Holder(), 0.0
		for _, r := range w.Replicas() {
			says, err := r.Metric("janitor_leader")
			if err != nil {
				return false
			}
			if leaders += says; says == 1 && r.ID == holder {
				leader = r
			}
		}
		return leaders == 1 && leader != nil
	})
	return leader
}

// Holder returns who has the lease, if anybody.
func (w *Environment) Holder() string {
	id, _, _ := strings.Cut(w.Get(w.Context(), w.Lease()).Val(), "/")
	return id
}

// Listened waits until deletes may begin.
func (w *Environment) Listened() {
	w.Helper()
	Eventually(w, "the witness has listened for GRACE", func() bool {
		s, err := w.Leader().Status()
		witness := s.Janitor.Witness
		return err == nil && s.Janitor.Leading && !witness.LastTick.IsZero() && witness.HeldFor == 0
	})
}

// InPass waits for n more batches: the leader is in the middle of evicting.
func (w *Environment) InPass(n int64) {
	w.Helper()
	before := w.XLen(w.Context(), w.Log()).Val()
	Eventually(w, "a pass is under way", func() bool {
		return w.XLen(w.Context(), w.Log()).Val() >= before+n
	})
}

// Beats waits until every running replica has beaten n times.
func (w *Environment) Beats(n int) {
	w.Helper()
	for _, r := range w.Replicas() {
		var last time.Time
		for left := n; left >= 0; left-- { // the first is the one before
			Eventually(w, "replica "+r.ID+" beats", func() bool {
				s, err := r.Status()
				if err != nil || s.Registry.LastBeat.Equal(last) {
					return false
				}
				last = s.Registry.LastBeat
				return true
			})
		}
		n = min(n, 1) // the others have beaten as often in the meantime
	}
}
