package orphan

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// often is a rig with full passes so far apart that some others fit in between.
func often(t *testing.T, w redistest.World, rules ...rules.Rule) *rig {
	t.Helper()
	client := func() *redis.Client { return redis.NewClient(w.Options) }
	return newRigEvery(t, 30*time.Second, client(), client(), redis.NewClient(lease.Options(w.Options)), w.Prefix, nil,
		rules...)
}

// dueAt is when the next full pass of a rule is due.
func (r *rig) dueAt(rule string) time.Time {
	r.set.mu.Lock()
	defer r.set.mu.Unlock()
	return r.set.due[rule]
}

func TestWhatACapLeavesDoesNotWaitForTheNextFullPass(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := session(p)
		rule.Cap = 7
		r := often(t, w, rule)
		for i := range 19 {
			r.do("SET", fmt.Sprintf("%ssession:%d", p, i), "old")
		}
		asked := time.Now()
		result := r.sweep("sessions")
		require.Equal(t, []int{19, 19, 0}, []int{result.Condemned, result.Waiting, result.Left})
		require.WithinRange(t, result.Until, asked.Add(rule.Grace), time.Now().Add(rule.Grace))
		r.pass("sessions", time.Minute)
		result = r.sweep("sessions")
		require.Equal(t, []int{7, 12, 0}, []int{result.Removed, result.Left, result.Waiting})
		require.Zero(t, result.Until)
		due := r.dueAt("sessions")
		waittest.Until(t, time.Millisecond, func() bool { return r.set.Stats().Keys == 19 })
		require.Equal(t, due, r.dueAt("sessions"), "there was no full pass")
	})
}

func TestWhatHadNoMarkGetsOneAsSoonAsThereIsRoom(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		rule := session(p)
		rule.Cap = 1 // ten marks
		r := often(t, w, rule)
		for i := range 13 {
			r.do("SET", fmt.Sprintf("%ssession:%d", p, i), "old")
		}
		require.Equal(t, 3, r.sweep("sessions").Left)
		r.pass("sessions", time.Minute)
		result := r.sweep("sessions")
		require.Equal(t, []int{1, 9 + 3}, []int{result.Removed, result.Left})
		due := r.dueAt("sessions")
		waittest.Until(t, time.Millisecond, func() bool {
			return r.set.Stats().Keys == 10 && r.rdb.HLen(t.Context(), marksKey(r.layout, "sessions")).Val() == 3
		})
		require.True(t, r.dueAt("sessions").Add(-30*time.Second).Before(due), "it began before it was due")
	})
}

func TestSomebodyWhoAskedIsAnsweredAlsoOfADryPass(t *testing.T) {
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		r.do("SET", p+"session:1", "old")
		asked := time.Now()
		require.Empty(t, r.set.Asked(asked))
		_, err := r.jan.Sweep(t.Context(), janitor.Request{DryRun: true})
		require.NoError(t, err)
		found := r.set.Asked(asked)
		require.Len(t, found, 1)
		require.Equal(t, []int{1, 1}, []int{found[0].Condemned, found[0].Waiting})
		require.Zero(t, r.result("sessions").Condemned, "it counts for nobody else")
	})
}
