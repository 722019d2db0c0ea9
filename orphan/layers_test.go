package orphan

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
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

// Go code and the script ask for some things both. Here each is asked alone.

func TestTheScriptItselfAsksHowOldAMarkIs(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		goes := func(name string) {
			r.do("SET", p+name, "old")
			r.sweep("sessions")
			r.pass("sessions", time.Minute)
			r.sweep("sessions")
		}
		goes("session:b") // the server knows the script from now on
		require.False(t, r.exists(p+"session:b"))
		var args []any
		r.set.c.Client.AddHook(&withArgs{before{command: "evalsha", with: `"seen"`, f: func() {
			key := marksKey(r.layout, "sessions")
			was := r.rdb.HGet(t.Context(), key, p+"session:a").Val()
			m, _ := proof.ParseMark(was)
			is := fmt.Sprintf("%d %d %s", time.Now().Add(-time.Second).UnixMilli(), m.Chain, m.Print)
			r.do("HSET", key, p+"session:a", is)
			for i, arg := range args {
				if text, ok := arg.(string); ok {
					args[i] = strings.Replace(text, was, is, 1)
				}
			}
		}}, &args})
		goes("session:a")
		require.NotEmpty(t, args)
		require.True(t, r.exists(p+"session:a"))
	})
}

// withArgs is before whose f may change the command.
type withArgs struct {
	before
	args *[]any
}

func (h *withArgs) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	inner := h.before.ProcessHook(next)
	return func(ctx context.Context, cmd redis.Cmder) error {
		*h.args = cmd.Args()
		return inner(ctx, cmd)
	}
}

func TestTheScriptItselfAsksWhetherAHoldCameAfterTheMark(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		r.do("SET", p+"session:a", "old")
		// Long enough for the guard; later than the mark, and, by a clock that went back, before it.
		for _, since := range []time.Duration{5 * time.Minute, 20 * time.Minute} {
			r.listened(10 * time.Hour)
			r.sweep("sessions")
			r.pass("sessions", 10*time.Minute)
			r.set.c.Client.AddHook(&before{command: "evalsha", with: `"seen"`, f: func() { r.listened(since) }})
			require.Equal(t, map[string]int{changed: 1}, r.sweep("sessions").Kept, since)
			require.True(t, r.exists(p+"session:a"))
		}
	})
}

func TestTheScriptItselfAsksForTheReferences(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := session(p)
		rule.KeepIf = []rules.Sign{{Member: &rules.Member{Set: p + "users", Of: "{user}"}}}
		rule.UnlessLost = []rules.Reference{{Exists: p + "users"}}
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SADD", p+"users", "b")
		r.do("SET", p+"session:a", "old")
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		r.set.c.Client.AddHook(&before{command: "evalsha", with: `"seen"`, f: func() { r.do("DEL", p+"users") }})
		result := r.sweep("sessions")
		require.Equal(t, []any{janitor.Held, heldLost}, []any{result.Outcome, result.Reason}, result)
		require.True(t, r.exists(p+"session:a"))
	})
}

func TestASignOfLifeBetweenTwoLooksMakesTheFirstWorthless(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		r := newRig(t, w.Options, p, nil, session(p))
		r.do("SET", p+"session:a", "old")
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		r.do("SET", p+"user:a", "1")
		require.Equal(t, map[string]int{alive: 1}, r.sweep("sessions").Kept)
		r.do("DEL", p+"user:a")
		require.Equal(t, map[string]int{waiting: 1}, r.sweep("sessions").Kept)
		require.True(t, r.exists(p+"session:a"))
	})
}

func TestAChannelOfWhichNoServerTellsKeeps(t *testing.T) {
	t.Parallel()
	redistest.Worlds(t, func(t *testing.T, w redistest.World) {
		t.Parallel()
		p := w.Prefix
		rule := session(p)
		rule.KeepIf = []rules.Sign{{Channel: p + "user:{user}"}}
		r := newRig(t, w.Options, p, nil, rule)
		r.do("SET", p+"session:a", "old")
		r.set.c.Client.AddHook(&refusing{command: "pubsub", with: "numsub", times: 1})
		require.Equal(t, map[string]int{unknown: 1}, r.sweep("sessions").Kept)
		require.Equal(t, map[string]int{waiting: 1}, r.sweep("sessions").Kept)
	})
}

func TestOnAClusterNothingGoesByEvidenceThatIsTooOld(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := newClusterRig(t, c, nil, session(""))
	r.do("SET", "session:a", "old")
	r.sweep("sessions")
	r.pass("sessions", time.Minute)
	r.set.c.Client.AddHook(&refusing{command: "evalsha", with: "session:aorphan:bin:", times: 1})
	r.sweep("sessions") // it is intended, and the server that has the key is not reached
	noted := r.rdb.HVals(t.Context(), intentsKey(r.layout, "sessions")).Val()
	require.Len(t, noted, 1)
	var late item
	require.NoError(t, json.Unmarshal([]byte(noted[0]), &late))
	server := c.Owner(string(late.Key)).Client()
	require.Eventually(t, func() bool {
		at, err := server.Time(t.Context()).Result()
		return err == nil && at.UnixMilli() > late.Last
	}, time.Minute, 10*time.Millisecond)
	keys := []string{string(late.Key), string(*late.Aside)}
	said, err := awayScript.Run(t.Context(), r.rdb, keys, late.Last, 3600_000, jsonOf(late)).Int()
	require.NoError(t, err)
	require.Equal(t, -1, said)
	require.True(t, r.exists("session:a"))
}

func TestOnAClusterAnIntentAsksForTheMark(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := newClusterRig(t, c, nil, session(""))
	r.do("SET", "session:a", "old")
	r.sweep("sessions")
	r.pass("sessions", time.Minute)
	taken := &before{command: "evalsha", with: `"intent"`, f: func() { r.do("DEL", marksKey(r.layout, "sessions")) }}
	r.set.c.Client.AddHook(taken)
	require.Equal(t, map[string]int{changed: 1}, r.sweep("sessions").Kept)
	require.True(t, taken.done)
	require.True(t, r.exists("session:a"))
}

// All of a candidate and its signs is on servers that answer. Whatever the third one has, it was
// not read.
func TestOnAClusterNothingGoesInAPassThatMissesAMasterItDoesNotNeed(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	r := newClusterRig(t, c, nil, session(""))
	home := c.Owner(r.layout.Log())
	var lost *redistest.Server
	for _, s := range c.Nodes {
		if s != home {
			lost = s
		}
	}
	user := ""
	for i := 0; user == ""; i++ {
		name := strconv.Itoa(i)
		if c.Owner("session:"+name) != lost && c.Owner("user:"+name) != lost && c.Owner("cart:"+name) != lost {
			user = name
		}
	}
	r.do("SET", "session:"+user, "old")
	r.sweep("sessions")
	r.pass("sessions", time.Minute)
	lost.Kill()
	result := r.sweep("sessions")
	require.Equal(t, janitor.Done, result.Outcome, result)
	require.Equal(t, Coverage{Masters: 2, Of: 3}, result.Coverage)
	require.Equal(t, 1, result.Condemned)
	require.True(t, r.exists("session:"+user))
}
