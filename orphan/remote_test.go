package orphan

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait/waittest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/janitor/proof"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

// What is asked whether a thing is away must not miss it, however late it goes.
func TestOnAClusterWhatGoesAtTheLastInstantIsCounted(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := newClusterRig(t, c, nil, session(""))
	r.do("SET", "session:a", "old")
	r.sweep("sessions")
	r.pass("sessions", time.Minute)
	lost := &refusing{command: "evalsha", with: "session:aorphan:bin:", times: 1}
	r.set.c.Client.AddHook(lost)
	r.sweep("sessions") // it is intended, and the server that has the key is not reached
	require.Zero(t, lost.times)
	noted := r.rdb.HVals(t.Context(), intentsKey(r.layout, "sessions")).Val()
	require.Len(t, noted, 1)
	var late item
	require.NoError(t, json.Unmarshal([]byte(noted[0]), &late))

	// The late call lands between two questions of the next pass, while it may, and then it may no
	// more.
	r.set.c.Client.AddHook(&after{command: "exists", with: string(*late.Aside), f: func() {
		keys := []string{string(late.Key), string(*late.Aside)}
		require.NoError(t, awayScript.Run(t.Context(), r.rdb, keys, late.Last, 3600_000, jsonOf(late)).Err())
		require.Eventually(t, func() bool {
			at, err := c.Owner(string(late.Key)).Client().Time(t.Context()).Result()
			return err == nil && at.UnixMilli() > late.Last
		}, time.Minute, 10*time.Millisecond)
	}})
	r.sweep("sessions")
	gone := uint64(1)
	if r.exists(string(late.Key)) { // on a slow machine it did not land in time
		gone = 0
	}
	r.sweep("sessions")
	require.Equal(t, gone, r.set.Stats().Rules["sessions"])
	require.False(t, r.exists(string(*late.Aside)))
}

// after is a hook that calls f behind the first command that matches.
type after before

func (*after) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*after) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		(*before)(a).meets(cmd)
		return err
	}
}

// The scripts that delete on a Cluster cannot see the references: they are on other servers.
func TestOnAClusterAReferenceThatIsLostDuringAPassKeepsWhatIsLeft(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := newClusterRig(t, c, nil, rules.Rule{
		Name: "states", Delete: true, Keys: "state:{bot}", KeepIf: []rules.Sign{{Member: &rules.Member{Set: "bots", Of: "{bot}"}}},
		UnlessLost: []rules.Reference{{Exists: "bots"}}, Grace: time.Minute,
	})
	r.do("SADD", "bots", "other")
	r.do("SET", "state:a", "old")
	r.sweep("states")
	r.pass("states", time.Minute)
	// It comes to life, and the set is lost, before the last look.
	looks := 0
	r.set.c.Client.AddHook(&before{command: "exists", with: "bots", f: func() {
		r.set.c.Client.AddHook(&before{command: "exists", with: "bots", f: func() {
			looks++
			r.set.c.Client.AddHook(&before{command: "sismember", with: "a", f: func() { looks++; r.do("DEL", "bots") }})
		}})
	}})
	result := r.sweep("states")
	require.Equal(t, 2, looks)
	require.Equal(t, heldLost, result.Reason, result)
	require.True(t, r.exists("state:a"))
}

// The witness listens to the server at home alone.
func TestOnAClusterAMarkOfBeforeAnotherMasterWasRestartedIsWorthless(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := newClusterRig(t, c, nil, session(""))
	home := c.Owner(r.layout.Log())
	n := 0
	for c.Owner(fmt.Sprint("user:", n)) == home || c.Owner(fmt.Sprint("session:", n)) == c.Owner(fmt.Sprint("user:", n)) {
		n++
	}
	user := fmt.Sprint("user:", n)
	r.do("SET", fmt.Sprint("session:", n), "old")
	r.sweep("sessions")
	r.pass("sessions", time.Minute)
	r.do("SET", user, "1") // a sign of life, which its server forgets
	c.Owner(user).Restart()
	c.AwaitOK()
	require.False(t, r.exists(user))
	result := r.sweep("sessions")
	require.Equal(t, map[string]int{waiting: 1}, result.Kept, result)
	r.pass("sessions", time.Minute)
	require.Equal(t, 1, r.sweep("sessions").Removed)
}

// What the last look does not find may be what a server has forgotten since the pass compared them.
func TestOnAClusterAMasterThatIsRestartedBeforeTheLastLookKeepsWhatIsLeft(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := newClusterRig(t, c, nil, rules.Rule{
		Name: "states", Delete: true, Keys: "state:{bot}", KeepIf: []rules.Sign{{Exists: "alive:{bot}"}},
		UnlessLost: []rules.Reference{{Exists: "bots"}}, Grace: time.Minute,
	})
	r.do("SADD", "bots", "other")
	bot := 0
	for c.Owner(fmt.Sprint("alive:", bot)) == c.Owner(r.layout.Log()) ||
		c.Owner(fmt.Sprint("alive:", bot)) == c.Owner(fmt.Sprint("state:", bot)) ||
		c.Owner(fmt.Sprint("alive:", bot)) == c.Owner("bots") {
		bot++
	}
	state, alive := fmt.Sprint("state:", bot), fmt.Sprint("alive:", bot)
	r.do("SET", state, "old")
	r.sweep("states")
	r.pass("states", time.Minute)
	forgot := false
	r.set.c.Client.AddHook(&before{command: "exists", with: "bots", f: func() { // as the pass begins
		r.set.c.Client.AddHook(&before{command: "exists", with: "bots", f: func() { // behind the comparison
			r.do("SET", alive, "1")
			c.Owner(alive).Restart()
			c.AwaitOK()
			forgot = !r.exists(alive)
		}})
	}})
	result := r.sweep("states")
	require.True(t, forgot)
	require.Zero(t, result.Removed, result)
	require.False(t, result.Coverage.Complete, result)
	require.True(t, r.exists(state))
}

// A replica that hangs does not answer before the pass, and is not waited for behind the look: that
// counts for no longer than such a wait.
func TestOnAClusterANodeThatHangsKeepsNothing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	patient := lease.ClusterOptions(c.Options())
	patient.DialTimeout, patient.ReadTimeout, patient.ContextTimeoutEnabled = 10*time.Second, 10*time.Second, true
	control := redis.NewClusterClient(lease.ClusterOptions(c.Options()))
	r := newRigOn(t, c.Client(), redis.NewClusterClient(patient), control, "{cleanup}:", nil, rules.Rule{
		Name: "states", Delete: true, Keys: "state:{bot}", Grace: time.Minute,
		KeepIf: []rules.Sign{{Exists: "alive:{bot}"}}, UnlessLost: []rules.Reference{{Exists: "bots"}},
	})
	r.do("SADD", "bots", "other")
	r.do("SET", "state:1", "old")
	hung := c.Nodes[3]
	hung.Stop()
	defer hung.Cont()
	waittest.Until(t, time.Millisecond, func() bool {
		r.sweep("states")
		r.pass("states", time.Minute)
		return !r.exists("state:1")
	})
}

// A rule was taken out of RULES between the two steps of a delete.
func TestOnAClusterWhatARuleThatIsGoneIntendedIsSettled(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := newClusterRig(t, c, nil, session(""))
	r.do("SET", "orphan:bin:gone-1-0:{cart:a}", "old")
	for id, key := range map[string]string{"gone-1-0": "cart:a", "gone-1-1": "cart:b"} {
		name := raw(aside(id, key))
		text := jsonOf(item{
			Proof: proof.Proof{Name: key}, ID: id, Key: raw(key), Aside: &name, Last: time.Now().Add(-time.Second).UnixMilli(),
			Entry: raw(jsonOf(binned{ID: id, Key: raw(key), Aside: name})), Until: time.Now().Add(time.Hour).UnixMilli(),
		})
		r.do("HSET", intentsKey(r.layout, "gone"), id, text)
	}
	r.do("HSET", intentsKey(r.layout, "gone"), "gone-1-2", "{")
	r.do("HSET", passesKey(r.layout), "gone", "{}")
	require.Equal(t, janitor.Done, r.sweep("sessions").Outcome)
	require.Equal(t, map[string]string{"gone-1-2": "{"}, r.rdb.HGetAll(t.Context(), intentsKey(r.layout, "gone")).Val())
	require.Equal(t, "1", r.rdb.HGet(t.Context(), r.layout.Witness(), "evicted_total").Val())
	var entry binned
	err := json.Unmarshal([]byte(r.rdb.HGet(t.Context(), binnedKey(r.layout, "gone"), "gone-1-0").Val()), &entry)
	require.NoError(t, err)
	require.Equal(t, "cart:a", string(entry.Key))
}
