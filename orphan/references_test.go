package orphan

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// While a reference was lost nobody looked, and what is in it now is not all that was in it.
func TestAMarkOfBeforeAReferenceWasLostIsWorthless(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := rules.Rule{
			Name: "states", Delete: true, Keys: p + "state:{bot}",
			KeepIf:     []rules.Sign{{Member: &rules.Member{Set: p + "bots", Of: "{bot}"}}},
			UnlessLost: []rules.Reference{{Exists: p + "bots"}}, Grace: time.Minute,
		}
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SADD", p+"bots", "other")
		r.do("SET", p+"state:a", "old")
		r.sweep("states")
		r.pass("states", time.Minute)
		r.do("SADD", p+"bots", "a") // it lives
		r.do("DEL", p+"bots")
		require.Equal(t, heldLost, r.sweep("states").Reason)
		r.do("SADD", p+"bots", "other")
		require.Equal(t, map[string]int{waiting: 1}, r.sweep("states").Kept)
		require.True(t, r.exists(p+"state:a"))
	})
}

// The rules of a worker change, and what it has noted stays.
func TestAMarkOfARuleOfTheSameNameThatMeantSomethingElseIsWorthless(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := rules.Rule{
			Name: "states", Keys: p + "state:{bot}", Read: "json", Grace: time.Minute,
			KeepIf: []rules.Sign{{Value: &rules.Value{Field: ".status", In: []string{"playing"}}}},
		}
		r := newRig(t, w.Options, p, nil, rule)
		become := func(rule rules.Rule) {
			is, err := compile(rule.WithDefaults())
			require.NoError(t, err)
			*r.set.rules[0] = *is
		}
		r.do("SET", p+"state:a", `{"status":"idle"}`)
		r.sweep("states")
		r.pass("states", time.Minute)
		rule.KeepIf = []rules.Sign{{Value: &rules.Value{Field: ".status", In: []string{"queued"}}}}
		become(rule)
		require.Equal(t, map[string]int{waiting: 1}, r.sweep("states").Kept)
		r.pass("states", time.Minute)
		rule.Delete, rule.Cap, rule.Bin, rule.Category = true, 5, time.Hour, "other"
		become(rule)
		require.Equal(t, 1, r.sweep("states").Removed, "the same candidates")
	})
}

func TestHowLongAReferenceIsAbsentIsNotThatOfAnother(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_800_000_000_000)
	was := rules.Rule{Name: "a", UnlessLost: []rules.Reference{{ExistsAny: []string{"x", "y"}, OrFor: time.Hour}}}
	is := rules.Rule{Name: "a", UnlessLost: []rules.Reference{{ExistsAny: []string{"v", "w"}, OrFor: time.Hour}}}
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		rdb := redis.NewClient(w.Options)
		defer rdb.Close()
		noted := map[string]string{}
		state := func(field string) string { return noted[field] }
		found, err := (&rule{Rule: was}).references(t.Context(), plainly{rdb}, state, time.Time{}, at)
		require.NoError(t, err)
		require.NotEmpty(t, found.lost)
		noted = found.set
		found, err = (&rule{Rule: was}).references(t.Context(), plainly{rdb}, state, time.Time{}, at.Add(time.Hour))
		require.NoError(t, err)
		require.Empty(t, found.lost)
		found, err = (&rule{Rule: is}).references(t.Context(), plainly{rdb}, state, time.Time{}, at.Add(time.Hour))
		require.NoError(t, err)
		require.NotEmpty(t, found.lost)
	})
}

// A hash tag is written with braces twice, as in every other template.
func TestNamesWithoutVariablesAreTemplatesToo(t *testing.T) {
	list, err := rules.Parse([]byte(`rules:
- name: seats
  members: {zset: "{{hall}}:seats", as: id}
  keep_if: [{exists: "user:{id}"}]
  unless_lost:
  - exists: "{{hall}}:open"
  - exists_any: ["{{hall}}:a", "{{hall}}:b"]
  - channels: {pattern: "{hall}*", when: {hash_not_empty: "{{hall}}:hash"}}
`))
	require.NoError(t, err)
	r, err := compile(list[0])
	require.NoError(t, err)
	require.Equal(t, "{hall}:seats", rules.Literal(r.container.String()))
	require.Equal(t, []rules.Reference{
		{Exists: "{hall}:open"}, {ExistsAny: []string{"{hall}:a", "{hall}:b"}},
		{Channels: &rules.Channels{Pattern: "{hall}*", When: rules.When{HashNotEmpty: "{hall}:hash"}}},
	}, r.UnlessLost)
	require.Equal(t, "{{hall}}:open", list[0].UnlessLost[0].Exists)
}

// deaf does something before and after the first command that matches, and loses its answer.
type deaf struct {
	before
	after func()
}

func (d *deaf) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (d *deaf) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		was := d.done
		d.meets(cmd)
		err := next(ctx, cmd)
		if d.done && !was {
			d.after()
			err = io.ErrUnexpectedEOF
			cmd.SetErr(err)
		}
		return err
	}
}

// Whoever is to record that a reference was lost, or that something lives, may never hear of it, or
// not get through.
func TestASignThatCouldNotBeRecordedEndsTheEvidence(t *testing.T) {
	t.Parallel()
	for what, loses := range map[string]func(r *rig, p string){
		"a reference was lost, by an answer that was lost": func(r *rig, p string) {
			r.set.c.Client.AddHook(&deaf{
				before{command: "evalsha", with: `"seen"`, f: func() { r.do("DEL", p+"users") }},
				func() { r.do("SADD", p+"users", "other") },
			})
		},
		"a reference was lost, and that was not noted": func(r *rig, p string) {
			r.set.c.Client.AddHook(&before{command: "exists", with: p + "users", f: func() { // when the pass begins
				r.set.c.Client.AddHook(&before{command: "exists", with: p + "users", f: func() {
					r.do("DEL", p+"users")
					r.set.c.Client.AddHook(&before{command: "evalsha", with: "chain", f: func() {
						r.do("SADD", p+"users", "other")
					}})
					r.set.c.Client.AddHook(&refusing{command: "evalsha", with: "chain", times: 1})
				}})
			}})
		},
		"it was alive at the last look, and could not be unmarked": func(r *rig, p string) {
			r.set.c.Client.AddHook(&before{command: "sismember", with: p + "usersa", f: func() { // of the first
				r.set.c.Client.AddHook(&before{command: "sismember", with: p + "usersa", f: func() {
					r.do("SADD", p+"users", "a")
					r.set.c.Client.AddHook(&before{command: "evalsha", with: "orphan:marks", f: func() {
						r.do("SREM", p+"users", "a")
					}})
					r.set.c.Client.AddHook(&refusing{command: "evalsha", with: "orphan:marks", times: 1})
				}})
			}})
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			redistest.Worlds(t, func(t *testing.T, w redistest.World) {
				t.Parallel()
				p := w.Prefix
				rule := session(p)
				rule.KeepIf = []rules.Sign{{Member: &rules.Member{Set: p + "users", Of: "{user}"}}}
				rule.UnlessLost = []rules.Reference{{Exists: p + "users"}}
				r := newRig(t, w.Options, p, nil, rule)
				r.do("SADD", p+"users", "other")
				ripens := func(name string) {
					r.do("SET", p+"session:"+name, "old")
					r.sweep("sessions")
					r.pass("sessions", time.Minute)
				}
				ripens("b")
				require.Equal(t, 1, r.sweep("sessions").Removed, "the server knows the script")
				ripens("a")
				loses(r, p)
				require.Equal(t, janitor.Failed, r.sweep("sessions").Outcome)
				require.True(t, r.exists(p+"users"))
				require.Equal(t, map[string]int{waiting: 1}, r.sweep("sessions").Kept)
				require.True(t, r.exists(p+"session:a"))
			})
		})
	}
}
