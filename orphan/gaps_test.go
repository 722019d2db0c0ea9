package orphan

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// before is a hook of the janitor's client, which calls f before the first command that matches.
type before struct {
	command string // in lower case
	with    string // in one of its arguments
	f       func()
	done    bool
}

func (*before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.meets(cmd)
		return next(ctx, cmd)
	}
}

func (b *before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			b.meets(cmd)
		}
		return next(ctx, cmds)
	}
}

func (b *before) meets(cmd redis.Cmder) {
	if !b.done && cmd.Name() == b.command && strings.Contains(fmt.Sprint(cmd.Args()...), b.with) {
		b.done = true
		b.f()
	}
}

// session is a rule about keys of any type, without a value that is read.
func session(p string) rules.Rule {
	return rules.Rule{
		Name: "sessions", Delete: true, Keys: p + "session:{user}", KeepIf: []rules.Sign{{Exists: p + "user:{user}"}},
		Grace: time.Minute,
	}
}

// A candidate that is made anew under its old name, changed, refreshed, or that shows a sign of
// life, is not deleted, whichever gap that falls into.
func TestWhatIsMadeAnewInAnyGapSurvives(t *testing.T) {
	changes := map[string]func(r *rig, p string){
		"another value":             func(r *rig, p string) { r.do("SET", p+"session:a", "new", "PX", 3600_000) },
		"the same value, refreshed": func(r *rig, p string) { r.do("PEXPIRE", p+"session:a", 3600_001) },
		"the same value, made anew": func(r *rig, p string) {
			r.do("DEL", p+"session:a")
			r.do("SET", p+"session:a", "old", "PX", 3600_002)
		},
		"a value of another type": func(r *rig, p string) {
			r.do("DEL", p+"session:a")
			r.do("HSET", p+"session:a", "f", "v")
		},
		"a sign of life":           func(r *rig, p string) { r.do("SET", p+"user:a", "1") },
		"its mark made by another": func(r *rig, p string) { r.do("DEL", marksKey(r.layout, "sessions")) },
		"the witness has a hold":   func(r *rig, _ string) { r.listened(0) },
	}
	gaps := map[string]func(r *rig, change func()){
		"between the looks": func(r *rig, change func()) {
			r.sweep("sessions")
			r.pass("sessions", time.Minute)
			change()
			r.sweep("sessions")
		},
		"between look and last look": func(r *rig, change func()) {
			r.sweep("sessions")
			r.pass("sessions", time.Minute)
			r.set.c.Client.AddHook(&before{command: "evalsha", with: "orphan:state", f: func() {
				r.set.c.Client.AddHook(&before{command: "exists", with: "user:a", f: func() { // of the look
					r.set.c.Client.AddHook(&before{command: "exists", with: "user:a", f: change})
				}})
			}})
			r.sweep("sessions")
		},
		"between last look and delete": func(r *rig, change func()) {
			r.sweep("sessions")
			r.pass("sessions", time.Minute)
			r.set.c.Client.AddHook(&before{command: "evalsha", with: `"seen"`, f: change})
			r.sweep("sessions")
		},
	}
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		for gap, run := range gaps {
			for what, change := range changes {
				t.Run(gap+"/"+what, func(t *testing.T) {
					t.Parallel()
					p := fmt.Sprintf("%s%x:", w.Prefix, digest(gap + what)[:8])
					r := newRig(t, w.Options, p, nil, session(p))
					r.do("SET", p+"session:a", "old", "PX", 3600_000)
					r.do("SADD", p+"cart:a", "thing")
					r.do("SET", p+"session:b", "old")
					r.do("SET", p+"session:c", "old")
					r.do("SET", p+"user:c", "1")
					done := false
					run(r, func() { done = true; change(r, p) })
					require.True(t, done)
					require.True(t, r.exists(p+"session:a", p+"session:c"))
					if what != "the witness has a hold" && !strings.HasPrefix(what, "its mark") {
						require.False(t, r.exists(p+"session:b"), "the other goes")
					}
				})
			}
		}
	})
}

func TestTooManyNewlyCondemnedHoldTheRuleOnce(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := session(p)
		rule.Cap = 8
		r := newRig(t, w.Options, p, nil, rule)
		for i := range 40 {
			r.do("SET", fmt.Sprintf("%ssession:%d", p, i), "old")
			if i >= 21 {
				r.do("SET", fmt.Sprintf("%suser:%d", p, i), "1")
			}
		}
		result := r.sweep("sessions")
		require.Equal(t, []any{janitor.Held, "mass_failure"}, []any{result.Outcome, result.Reason}, result)
		r.pass("sessions", time.Minute)
		require.Equal(t, janitor.Held, r.sweep("sessions").Outcome, "still")
		until, err := r.rdb.HGet(t.Context(), stateKey(r.layout, "sessions"), "held_until").Int64()
		require.NoError(t, err)
		r.do("HSET", stateKey(r.layout, "sessions"), "held_until", until-time.Minute.Milliseconds())
		result = r.sweep("sessions")
		require.Equal(t, janitor.Done, result.Outcome, result.Detail)
		require.Equal(t, 8, result.Removed)
		require.Equal(t, 13, result.Kept[capped])
		require.Equal(t, 8, r.sweep("sessions").Removed)
		require.Equal(t, 5, r.sweep("sessions").Removed)
	})
}

func TestARuleThatDoesNotSayDeleteOnlyReports(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := session(p)
		rule.Delete = false
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SET", p+"session:a", "old")
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		result := r.sweep("sessions")
		require.True(t, result.DryRun)
		require.Equal(t, 1, result.Condemned)
		require.True(t, r.exists(p+"session:a"))
		require.Equal(t, 1, r.jan.Status().Sweeps[2].Condemned)

		plans, err := r.set.Plan(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, p+"session:a", plans[0].Findings[0].Name)
		require.False(t, plans[0].Findings[0].Since.IsZero())
		found, err := r.set.Explain(t.Context(), p+"session:a")
		require.NoError(t, err)
		require.Equal(t, []string{p + "session:a", "condemned"}, []string{found[0].Name, found[0].Verdict})
	})
}

func TestTheBreakerHoldsOnceAlsoWhenThereAreMoreThanMarks(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := session(p)
		rule.Cap = 2 // 20 marks
		r := newRig(t, w.Options, p, nil, rule)
		for i := range 100 {
			r.do("SET", fmt.Sprintf("%ssession:%d", p, i), "old")
		}
		result := r.sweep("sessions")
		require.Equal(t, "mass_failure", result.Reason, result)
		require.Equal(t, 80, result.Kept[noMark])
		r.pass("sessions", time.Hour)
		over := func() {
			r.do("HSET", stateKey(r.layout, "sessions"), "held_until", time.Now().Add(-time.Second).UnixMilli())
		}
		over()
		require.Equal(t, 2, r.sweep("sessions").Removed)
		require.Equal(t, 2, r.sweep("sessions").Removed, "it is not held again")
		for i := range 90 {
			r.do("SET", fmt.Sprintf("%suser:%d", p, i), "1")
		}
		r.sweep("sessions")
		for i := range 90 {
			r.do("DEL", fmt.Sprintf("%suser:%d", p, i))
		}
		require.Equal(t, "mass_failure", r.sweep("sessions").Reason, "another wave")
	})
}

func TestARequestedDryRunStandsForNoPass(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		before := r.sweep("sessions")
		s := r.sweeps[0].(*sweep)
		due := s.nextFull
		reports, err := r.jan.Sweep(t.Context(), janitor.Request{DryRun: true})
		require.NoError(t, err)
		require.NotEmpty(t, reports)
		require.Equal(t, before, r.result("sessions"), "nothing counts it")
		require.Equal(t, due, s.nextFull, "the next full pass is due as before")
		r.sweep("sessions")
		require.True(t, s.nextFull.After(due))
	})
}
