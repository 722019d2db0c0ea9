package orphan

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// become gives the first rule another meaning.
func (r *rig) become(rule rules.Rule) {
	r.t.Helper()
	is, err := compile(rule.WithDefaults())
	require.NoError(r.t, err)
	*r.set.rules[0] = *is
}

func TestAPassThatDidNotLookEndsTheEvidence(t *testing.T) {
	running := Document{"state": "idle"}
	for what, during := range map[string]func(t *testing.T, r *rig, source *documents){
		"its source was away": func(t *testing.T, r *rig, source *documents) {
			source.err = errors.New("away")
			require.Equal(t, heldSource, r.sweep("carts").Reason)
			source.err = nil
		},
		"its collection was empty": func(t *testing.T, r *rig, source *documents) {
			all := source.all
			source.all = nil
			require.Equal(t, heldLost, r.sweep("carts").Reason)
			source.all = all
		},
		"it failed": func(t *testing.T, r *rig, _ *documents) {
			fails := &refusing{command: "info", times: 100, after: 1}
			r.set.c.Client.AddHook(fails)
			require.Equal(t, janitor.Failed, r.sweep("carts").Outcome)
			fails.times = 0
		},
		"it was paused": func(t *testing.T, r *rig, _ *documents) {
			require.NoError(t, r.jan.Pause(t.Context(), janitor.Pause{Who: "test", Until: time.Now().Add(time.Hour)}))
			require.Equal(t, janitor.Held, r.sweep("carts").Outcome)
			require.NoError(t, r.jan.Resume(t.Context()))
		},
		"the rule meant something else": func(t *testing.T, r *rig, _ *documents) {
			was := r.set.rules[0].Rule
			other := was
			other.Keys = was.Keys + ":other"
			other.KeepIf = []rules.Sign{{Exists: was.KeepIf[0].Exists}}
			r.become(other)
			r.sweep("carts")
			r.become(was)
		},
		"the clock was set": func(_ *testing.T, r *rig, _ *documents) {
			r.sweeps[0].(*sweep).memory.Shift(time.Minute)
		},
		"another leader broke off": func(_ *testing.T, r *rig, _ *documents) {
			r.do("HDEL", stateKey(r.layout, "carts"), "looked")
		},
	} {
		t.Run(what, func(t *testing.T) {
			redistest.OnReal(t, func(t *testing.T, w redistest.World) {
				p := w.Prefix
				source := &documents{all: map[string]Document{"ann": running}}
				r := newRig(t, w.Options, p, source, rules.Rule{
					Name: "carts", Delete: true, Keys: p + "cart:{user}", Grace: time.Minute,
					KeepIf: []rules.Sign{
						{Exists: p + "session:{user}"},
						{Mongo: &rules.Mongo{Collection: "users", ID: "{user}", All: []rules.Condition{{Field: "state", In: []string{"active"}}}}},
					},
				})
				r.do("SET", p+"cart:ann", "1")
				require.Equal(t, 1, r.sweep("carts").Kept[waiting])
				r.pass("carts", time.Minute)
				during(t, r, source)
				result := r.sweep("carts")
				require.Equal(t, []int{0, 1}, []int{result.Removed, result.Kept[waiting]}, result)
				r.pass("carts", time.Minute)
				require.Equal(t, 1, r.sweep("carts").Removed)
			})
		})
	}
}

// While the breaker holds the rule, what comes to life again loses its mark.
func TestARuleThatIsHeldByItsBreakerIsLookedAt(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		for i := range 30 {
			r.do("SET", fmt.Sprintf("%ssession:%d", p, i), "old")
		}
		require.Equal(t, heldMassFailure, r.sweep("sessions").Reason)
		r.do("SET", p+"user:7", "1")
		require.Equal(t, heldMassFailure, r.sweep("sessions").Reason)
		require.Equal(t, int64(29), r.rdb.HLen(t.Context(), marksKey(r.layout, "sessions")).Val())
		r.do("DEL", p+"user:7")
		r.pass("sessions", time.Minute)
		r.do("HDEL", stateKey(r.layout, "sessions"), "held_until")
		require.Equal(t, 29, r.sweep("sessions").Removed)
		require.True(t, r.exists(p+"session:7"))
	})
}

func TestTheScriptItselfAsksHowOldTheLookIs(t *testing.T) {
	t.Parallel()
	looked := regexp.MustCompile(`"looked":\d+`)
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		goes := func(name string) int {
			r.do("SET", p+name, "old")
			r.sweep("sessions")
			r.pass("sessions", time.Minute)
			return r.sweep("sessions").Removed
		}
		require.Equal(t, 1, goes("session:b"))
		for _, off := range []time.Duration{-121 * time.Second, time.Minute} {
			var args []any
			r.set.c.Client.AddHook(&withArgs{before{command: "evalsha", with: `"seen"`, f: func() {
				for i, arg := range args {
					if text, ok := arg.(string); ok {
						args[i] = looked.ReplaceAllString(text, `"looked":`+ms(time.Now().Add(off)))
					}
				}
			}}, &args})
			require.Zero(t, goes("session:a"), off)
			require.NotEmpty(t, args)
			r.do("DEL", p+"session:a")
		}
	})
}

func TestTheBreakerDoesNotCountABacklog(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := session(p)
		rule.Cap, rule.Read, rule.Bind = 10, "json", map[string]string{"id": ".id"}
		r := newRig(t, w.Options, p, nil, rule)
		for i := range 60 {
			r.do("SET", fmt.Sprintf("%ssession:orphan%d", p, i), `{"id":1}`)
			r.do("SET", fmt.Sprintf("%ssession:unreadable%d", p, i), `{`)
		}
		require.Equal(t, heldMassFailure, r.sweep("sessions").Reason)
		r.do("HDEL", stateKey(r.layout, "sessions"), "held_until")
		for i := range 30 {
			r.do("SET", fmt.Sprintf("%ssession:living%d", p, i), `{"id":1}`)
			r.do("SET", fmt.Sprintf("%suser:living%d", p, i), "1")
		}
		require.Equal(t, janitor.Done, r.sweep("sessions").Outcome)
		for i := range 30 {
			r.do("DEL", fmt.Sprintf("%suser:living%d", p, i))
		}
		require.Equal(t, heldMassFailure, r.sweep("sessions").Reason)
	})
}

// A cut connection delivers what was written into it seconds after its caller gave up.
func TestAMarkThatLandsBehindALookThatFoundLifeIsWorthless(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		var args, late []any
		r.set.c.Client.AddHook(&withArgs{before{command: "evalsha", with: "orphan:marks", f: func() {
			late = slices.Clone(args)
		}}, &args})
		cut := &refusing{command: "evalsha", with: "orphan:marks", times: 1}
		r.set.c.Client.AddHook(cut)
		r.do("SET", p+"session:a", "old")
		require.Equal(t, janitor.Failed, r.sweep("sessions").Outcome)
		require.Zero(t, cut.times)
		r.do("SET", p+"user:a", "1")
		require.Equal(t, map[string]int{alive: 1}, r.sweep("sessions").Kept)
		require.EqualValues(t, 1, r.rdb.Do(t.Context(), late...).Val())
		r.pass("sessions", time.Minute)
		r.do("DEL", p+"user:a")
		require.Equal(t, map[string]int{waiting: 1}, r.sweep("sessions").Kept)
		require.True(t, r.exists(p+"session:a"))
	})
}
