package orphan

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// A candidate that is made anew under its old name, changed, refreshed, or that shows a sign of
// life, is not deleted, whichever gap that falls into.
func TestWhatIsMadeAnewInAnyGapSurvives(t *testing.T) {
	changes := map[string]string{
		"another value":             "SET P:session:a new PX 3600000",
		"the same value, refreshed": "PEXPIRE P:session:a 3600001",
		"the same value, made anew": "DEL P:session:a\nSET P:session:a old PX 3600002",
		"a value of another type":   "DEL P:session:a\nHSET P:session:a f v",
		"a sign of life":            "SET P:user:a 1",
		"its mark made by another":  "DEL P:orphan:marks:sessions",
		"the witness has a hold":    "HSET P:janitor:witness since @ms-0s",
	}
	gaps := map[string]func(r *rig, change func()){
		"between the looks": func(r *rig, change func()) {
			change()
		},
		"between look and last look": func(r *rig, change func()) {
			r.on("exists P:user:a", &hook{after: 1, before: func([]any) { change() }})
		},
		"between last look and intent": func(r *rig, change func()) {
			r.on(`evalsha "intent"`, &hook{before: func([]any) { change() }})
		},
		"between intent and delete": func(r *rig, change func()) {
			r.on(goes, &hook{before: func([]any) { change() }})
		},
	}
	redistest.OnReal(t, func(t *testing.T, w redistest.World) {
		for gap, in := range gaps {
			for what, lines := range changes {
				t.Run(gap+"/"+what, func(t *testing.T) {
					t.Parallel()
					own := w
					own.Prefix = fmt.Sprintf("%s%x:", w.Prefix, digest(gap + what)[:8])
					r := newRig(t, own, session, config{})
					r.run(`SET P:session:a old PX 3600000
						SET P:session:b old
						SET P:session:c old
						SET P:user:c 1`)
					r.ripen("sessions", time.Minute)
					done := false
					in(r, func() { done = true; r.run(lines) })
					r.sweep("sessions")
					require.True(t, done)
					if gap != "between intent and delete" || !strings.HasPrefix(what, "its mark") { // which is gone by then
						r.there("P:session:a")
					}
					r.there("P:session:c")
					if what != "the witness has a hold" && !strings.HasPrefix(what, "its mark") {
						require.False(t, r.exists(r.p+"session:b"), "the other goes")
					}
				})
			}
		}
	})
}

// What another leader does with a rule ends what an earlier one has under way.
func TestWhatWasIntendedGoesOnlyWhileItsPassGoesOn(t *testing.T) {
	for what, lines := range map[string]string{
		"its intent was settled":   "DEL P:orphan:intents:sessions",
		"another pass has begun":   "HDEL P:orphan:state:sessions looked",
		"the evidence began anew":  "HSET P:orphan:state:sessions looked 1",
		"a hold came, and is over": "HSET P:janitor:witness since @ms-1h",
	} {
		t.Run(what, func(t *testing.T) {
			both(t, session, func(r *rig) {
				r.run("SET P:session:a old")
				r.ripen("sessions", time.Minute)
				r.before(goes, lines)
				r.swept("sessions", "1 changed")
				r.there("P:session:a")
			})
		})
	}
}

func TestAPassThatDidNotLookEndsTheEvidence(t *testing.T) {
	for what, during := range map[string]func(r *rig){
		"its source was away": func(r *rig) {
			r.source.err = errTest
			r.swept("carts", "held source:")
			r.source.err = nil
		},
		"its collection was empty": func(r *rig) {
			all := r.source.all
			r.source.all = nil
			r.swept("carts", "held reference_lost:")
			r.source.all = all
		},
		"it failed": func(r *rig) {
			fails := r.on("info", &hook{refuse: true, after: 1, times: 100})
			require.Equal(r, janitor.Failed, r.sweep("carts").Outcome)
			fails.mu.Lock()
			fails.times = 0
			fails.mu.Unlock()
		},
		"it was paused": func(r *rig) {
			require.NoError(r, r.jan.Pause(r.Context(), janitor.Pause{Who: "test", Until: time.Now().Add(time.Hour)}))
			require.Equal(r, janitor.Held, r.sweep("carts").Outcome)
			require.NoError(r, r.jan.Resume(r.Context()))
		},
		"the rule meant something else": func(r *rig) {
			was := r.set.rules[0].Rule
			other := was
			other.Keys, other.KeepIf = was.Keys+":other", was.KeepIf[:1]
			r.become(other)
			r.sweep("carts")
			r.become(was)
		},
		"the clock was set":        func(r *rig) { r.sweeps[0].(*sweep).memory.Shift(time.Minute) },
		"another leader broke off": func(r *rig) { r.run("HDEL P:orphan:state:carts looked") },
	} {
		t.Run(what, func(t *testing.T) {
			onReal(t, `
- name: carts
  keys: "P:cart:{user}"
  keep_if: [{exists: "P:session:{user}"}, {mongo: {collection: users, id: "{user}", all: [{field: state, in: [active]}]}}]
  grace: 1m
`, func(r *rig) {
				r.source.all["ann"] = Document{"state": "idle"}
				r.run("SET P:cart:ann 1")
				r.swept("carts", "1 waiting")
				r.pass("carts", time.Minute)
				during(r)
				r.swept("carts", "1 waiting")
				r.pass("carts", time.Minute)
				r.swept("carts", "1 removed")
			})
		})
	}
}

// The guarded script asks for itself what Go code has asked: how old the look is, and the mark.
func TestTheScriptItselfAsksHowOldTheEvidenceIs(t *testing.T) {
	t.Parallel()
	looked := regexp.MustCompile(`"looked":\d+`)
	for what, change := range map[string]func(r *rig, args []any){
		"an old look":   func(_ *rig, args []any) { rewrite(args, looked, `"looked":`+ms(time.Now().Add(-121*time.Second))) },
		"a future look": func(_ *rig, args []any) { rewrite(args, looked, `"looked":`+ms(time.Now().Add(time.Minute))) },
		"a young mark": func(r *rig, args []any) {
			key, name := marksKey(r.layout, "sessions"), r.p+"session:a"
			was := r.rdb.HGet(r.Context(), key, name).Val()
			m, _ := proof.ParseMark(was)
			is := fmt.Sprintf("%d %d %s", time.Now().Add(-time.Second).UnixMilli(), m.Chain, m.Print)
			r.do("HSET", key, name, is)
			rewrite(args, regexp.MustCompile(regexp.QuoteMeta(was)), is)
		},
	} {
		t.Run(what, func(t *testing.T) {
			both(t, session, func(r *rig) {
				r.run("SET P:session:b old") // the server knows the script from now on
				r.ripen("sessions", time.Minute)
				r.swept("sessions", "1 removed")
				r.run("SET P:session:a old")
				r.ripen("sessions", time.Minute)
				h := r.on(`evalsha "intent"`, &hook{before: func(args []any) { change(r, args) }})
				r.swept("sessions", "1 changed")
				require.Equal(r, 1, h.hits)
				r.there("P:session:a")
			})
		})
	}
}

func rewrite(args []any, from *regexp.Regexp, to string) {
	for i, arg := range args {
		if text, ok := arg.(string); ok {
			args[i] = from.ReplaceAllLiteralString(text, to)
		}
	}
}

func TestARuleThatDoesNotSayDeleteOnlyReports(t *testing.T) {
	both(t, session, func(r *rig) {
		r.set.rules[0].Delete = false
		r.run("SET P:session:a old")
		r.ripen("sessions", time.Minute)
		result := r.sweep("sessions")
		require.True(r, result.DryRun && result.Condemned == 1)
		r.there("P:session:a")
		require.Equal(r, 1, r.jan.Status().Sweeps[2].Condemned)

		plans, err := r.set.Plan(r.Context(), 10)
		require.NoError(r, err)
		require.Equal(r, r.p+"session:a", plans[0].Findings[0].Name)
		require.False(r, plans[0].Findings[0].Since.IsZero())
		found, err := r.set.Explain(r.Context(), r.p+"session:a")
		require.NoError(r, err)
		require.Equal(r, []string{r.p + "session:a", "condemned"}, []string{found[0].Name, found[0].Verdict})
	})
}

func TestARequestedDryRunStandsForNoPass(t *testing.T) {
	both(t, session, func(r *rig) {
		before := r.sweep("sessions")
		s := r.sweeps[0].(*sweep)
		due := s.nextFull
		reports, err := r.jan.Sweep(r.Context(), janitor.Request{DryRun: true})
		require.NoError(r, err)
		require.NotEmpty(r, reports)
		require.Equal(r, before, r.result("sessions"), "nothing counts it")
		require.Equal(r, due, s.nextFull, "the next full pass is due as before")
		r.sweep("sessions")
		require.True(r, s.nextFull.After(due))
	})
}

func TestAPlaceThatIsLostJustBeforeTheDeleteHoldsTheRule(t *testing.T) {
	both(t, states, func(r *rig) {
		r.run(`SADD P:bots b
			SET P:state:a old`)
		r.ripen("states", time.Minute)
		r.before(goes, "DEL P:bots")
		r.swept("states", "held reference_lost: 1 changed")
		r.there("P:state:a")
	})
}

func TestASignOfLifeBetweenTwoLooksMakesTheFirstWorthless(t *testing.T) {
	both(t, session, func(r *rig) {
		r.run("SET P:session:a old")
		r.ripen("sessions", time.Minute)
		r.run("SET P:user:a 1")
		r.swept("sessions", "1 alive")
		r.run("DEL P:user:a")
		r.swept("sessions", "1 waiting")
		r.there("P:session:a")
	})
}

func TestAChannelOfWhichNoServerTellsKeeps(t *testing.T) {
	both(t, strings.Replace(session, "exists:", "channel:", 1), func(r *rig) {
		r.run("SET P:session:a old")
		r.on("pubsub numsub", &hook{refuse: true})
		r.swept("sessions", "1 unknown")
		r.swept("sessions", "1 waiting")
	})
}

// While a reference was lost nobody looked, and what is in it now is not all that was in it.
func TestAMarkOfBeforeAReferenceWasLostIsWorthless(t *testing.T) {
	both(t, states, func(r *rig) {
		r.run(`SADD P:bots other
			SET P:state:a old`)
		r.ripen("states", time.Minute)
		r.run(`SADD P:bots a
			DEL P:bots`) // it lives
		r.swept("states", "held reference_lost:")
		r.run("SADD P:bots other")
		r.swept("states", "1 waiting")
		r.there("P:state:a")
	})
}

// The rules of a worker change, and what it has noted stays.
func TestAMarkOfARuleOfTheSameNameThatMeantSomethingElseIsWorthless(t *testing.T) {
	both(t, `- {name: states, keys: "P:state:{bot}", read: json, grace: 1m, keep_if: [{value: {field: .status, in: [playing]}}]}`, func(r *rig) {
		rule := r.set.rules[0].Rule
		r.run(`SET P:state:a {"status":"idle"}`)
		r.ripen("states", time.Minute)
		rule.KeepIf = []rules.Sign{{Value: &rules.Value{Field: ".status", In: []string{"queued"}}}}
		r.become(rule)
		r.swept("states", "1 waiting")
		r.pass("states", time.Minute)
		rule.Delete, rule.Cap, rule.Bin, rule.Category = true, 5, time.Hour, "other"
		r.become(rule)
		require.Equal(r, 1, r.sweep("states").Removed, "the same candidates")
	})
}

// A hash tag is written with braces twice, as in every other template.
func TestNamesWithoutVariablesAreTemplatesToo(t *testing.T) {
	t.Parallel()
	r := alone(t, `
- name: seats
  members: {zset: "{{hall}}:seats", as: id}
  keep_if: [{exists: "user:{id}"}]
  unless_lost:
  - exists: "{{hall}}:open"
  - exists_any: ["{{hall}}:a", "{{hall}}:b"]
  - channels: {pattern: "{hall}*", when: {hash_not_empty: "{{hall}}:hash"}}
`)
	r.run("ZADD {hall}:seats 1 ann")
	for _, key := range []string{"open", "b"} {
		r.swept("seats", "held reference_lost:")
		r.do("SET", "{hall}:"+key, 1)
	}
	r.swept("seats", "1 waiting")
	r.run("HSET {hall}:hash room 1")
	r.swept("seats", "held reference_lost:")
}

// Whoever is to record that a reference was lost, or that something lives, may never hear of it, or
// not get through.
func TestASignThatCouldNotBeRecordedEndsTheEvidence(t *testing.T) {
	t.Parallel()
	for what, loses := range map[string]func(r *rig){
		"a reference was lost, by an answer that was lost": func(r *rig) {
			r.on(goes, &hook{lose: true, before: func([]any) { r.run("DEL P:users") }, behind: func([]any) { r.run("SADD P:users other") }})
		},
		"a reference was lost, and that was not noted": func(r *rig) {
			r.on("exists P:users", &hook{after: 1, before: func([]any) { // not as the pass begins
				r.run("DEL P:users")
				r.on("evalsha chain", &hook{refuse: true, before: func([]any) { r.run("SADD P:users other") }})
			}})
		},
		"it was alive at the last look, and could not be unmarked": func(r *rig) {
			r.on("sismember P:usersa", &hook{after: 1, before: func([]any) {
				r.run("SADD P:users a")
				r.on("evalsha orphan:marks", &hook{refuse: true, before: func([]any) { r.run("SREM P:users a") }})
			}})
		},
	} {
		t.Run(what, func(t *testing.T) {
			both(t, `
- name: sessions
  keys: "P:session:{user}"
  keep_if: [{member: {set: "P:users", of: "{user}"}}]
  unless_lost: [{exists: "P:users"}]
  grace: 1m
`, func(r *rig) {
				r.run("SADD P:users other")
				ripens := func(name string) {
					r.run("SET P:session:" + name + " old")
					r.ripen("sessions", time.Minute)
				}
				ripens("b")
				require.Equal(r, 1, r.sweep("sessions").Removed, "the server knows the script")
				ripens("a")
				loses(r)
				require.Equal(r, janitor.Failed, r.sweep("sessions").Outcome)
				r.there("P:users")
				r.swept("sessions", "1 waiting")
				r.there("P:session:a")
			})
		})
	}
}

// go-redis returns the refusal of a new connection for the whole pipeline, and its commands look
// answered: nothing is there.
func TestAConnectionThatIsRefusedIsNoAnswer(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	require.NoError(t, srv.Client().ConfigSet(t.Context(), "requirepass", "secret").Err())
	o := srv.Options()
	o.Password = "wrong"
	c := redis.NewClient(o)
	defer c.Close()
	told := func(*redis.Cmd) { t.Error("it was told of an answer") }
	require.ErrorContains(t, ask(t.Context(), plainly{c}, []question{{args: []string{"EXISTS", "user:a"}, told: told}}), "WRONGPASS")
}
