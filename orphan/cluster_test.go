package orphan

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/orphan/rules"
)

func newClusterRig(t *testing.T, c *redistest.Cluster, source Source, rules ...rules.Rule) *rig {
	t.Helper()
	client := func() redis.UniversalClient { return redis.NewClusterClient(lease.ClusterOptions(c.Options())) }
	return newRigOn(t, c.Client(), client(), client(), "{cleanup}:", source, rules...)
}

func TestOnAClusterEveryMasterIsCoveredAndEachDeleteIsCountedOnce(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	source := &documents{all: map[string]Document{}}
	rules := []rules.Rule{session(""), queue(""), matches(""), bots(""), reservations("")}
	r := newClusterRig(t, c, source, rules...)
	r.set.evidence = time.Minute // this machine may be slow
	const n = 60
	for i := range n {
		user := fmt.Sprint("user", i)
		r.do("SET", "session:"+user, "old", "PX", 3600_000)
		r.do("ZADD", "queue:elo", 1500+i, user)
		r.do("SET", "queue:joinedAt:"+user, ms(time.Now().Add(-time.Hour)))
		r.do("SET", "bots:state:"+user, "idle")
		r.do("SET", "match:"+matchID(i), "{}")
		r.do("SET", "match:"+matchID(i)+":ratings", "{}")
		source.all[matchID(i)] = Document{"status": "ongoing", "endedAt": time.Now().Add(-2 * time.Hour)}
		r.do("SET", "queue:reservation:r"+user, `{"roomId":"room`+fmt.Sprint(i%6)+`"}`, "PX", 1800_000)
		if i%3 > 0 { // a third of everything is dead
			r.do("SET", "user:"+user, "1")
			r.do("SET", "queue:reservation:"+user, `{"roomId":"room1"}`, "PX", 3600_000)
			r.do("SADD", "bots:active", user)
		} else {
			source.all[matchID(i)]["status"] = "finished"
		}
	}
	r.do("HSET", "roomcaches", "room1", "{}", "room2", "{}")
	// One room has a channel only, on whichever node.
	sub := r.rdb.Subscribe(t.Context(), "$room4")
	defer sub.Close()
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)

	for _, rule := range rules {
		first := r.sweep(rule.Name)
		require.Equal(t, janitor.Done, first.Outcome, first)
		require.Equal(t, Coverage{Masters: 3, Of: 3, Complete: true}, first.Coverage)
		r.pass(rule.Name, 2*time.Minute)
	}
	r.sweep("")
	r.sweep("")
	r.pass("queue-joinedat", 2*time.Minute)
	r.sweep("")
	want := map[string]uint64{"sessions": n / 3, "queue": n / 3, "matches": n / 3, "bots": n / 3, "reservations": n / 2}
	require.Equal(t, want, r.set.Stats().Categories)
	require.Equal(t, uint64(n/3*(1+2+2+1)+n/2), r.set.Stats().Keys)
	total := 0
	for i := range n {
		user := fmt.Sprint("user", i)
		living := i%3 > 0
		require.Equal(t, living, r.exists("session:"+user), i)
		require.Equal(t, living, r.exists("bots:state:"+user), i)
		require.Equal(t, living, r.exists("queue:joinedAt:"+user), i)
		require.Equal(t, living, r.exists("match:"+matchID(i)+":ratings"), i)
		room := i % 6
		require.Equal(t, room == 1 || room == 2 || room == 4, r.exists("queue:reservation:r"+user), i)
		if !living {
			total++
		}
	}
	evicted, err := r.rdb.HGet(t.Context(), r.layout.Witness(), "evicted_total").Int()
	require.NoError(t, err)
	require.Equal(t, 6*total+n/2, evicted)
	require.Zero(t, r.rdb.Exists(t.Context(), intentsKey(r.layout, "sessions")).Val())

	// From the bin back, on three servers.
	bins := Bins{Client: r.rdb, Layout: r.layout}
	binned, err := bins.List(t.Context(), "bots")
	require.NoError(t, err)
	require.Len(t, binned, n/3)
	for _, b := range binned {
		back, err := bins.Restore(t.Context(), b.ID)
		require.NoError(t, err)
		require.Equal(t, Back, back[0].Fate)
	}
	require.True(t, r.exists("bots:state:user0") && r.exists("bots:state:user3"))
}

// failing is a hook that keeps the first answer of a command from arriving: the server has done it.
type failing struct {
	command, with string
	times         int
}

func (*failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *failing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			err = cmp.Or(err, f.fails(cmd))
		}
		return err
	}
}

func (f *failing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		return cmp.Or(f.fails(cmd), err)
	}
}

func (f *failing) fails(cmd redis.Cmder) error {
	if f.times == 0 || cmd.Name() != f.command || !strings.Contains(fmt.Sprint(cmd.Args()...), f.with) {
		return nil
	}
	f.times--
	cmd.SetErr(io.ErrUnexpectedEOF)
	return io.ErrUnexpectedEOF
}

func TestOnAClusterADeleteIsCountedOnceWhateverIsLostInBetween(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	r := newClusterRig(t, c, nil, session(""))
	for i, lost := range []failing{
		// the answer of the server that has the key
		{"evalsha", "orphan:bin:", 1},
		// the answer to intend, or to settle
		{"evalsha", "orphan:intents:", 1},
		{"evalsha", "orphan:intents:sessions{cleanup}:orphan:binned:", 1}, // to settle
		{"unlink", "orphan:bin:", 1},                                      // to the last clean-up
	} {
		r.do("SET", "session:a", "old")
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		r.set.c.Client.AddHook(&lost)
		r.sweep("sessions")
		require.Zero(t, lost.times, lost)
		r.sweep("sessions")
		r.pass("sessions", time.Minute)
		r.sweep("sessions") // what was not done is done now
		require.False(t, r.exists("session:a"), lost)
		require.Equal(t, uint64(i+1), r.set.Stats().Keys, lost)
		evicted, err := r.rdb.HGet(t.Context(), r.layout.Witness(), "evicted_total").Int()
		require.NoError(t, err)
		require.Equal(t, uint64(evicted), r.set.Stats().Rules["sessions"], lost)
	}
}

func TestOnAClusterAPassThatMissesAMasterCondemnsNothing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	r := newClusterRig(t, c, nil, session(""))
	for i := range 30 {
		r.do("SET", fmt.Sprint("session:", i), "old")
		r.do("SET", fmt.Sprint("user:", i), "1")
	}
	home := c.Owner(r.layout.Log())
	var other *redistest.Server
	for _, s := range c.Nodes {
		if s != home {
			other = s
		}
	}
	for i := range 5 {
		r.do("DEL", fmt.Sprint("user:", i))
	}
	r.sweep("sessions")
	r.pass("sessions", time.Minute)
	other.Kill()
	result := r.sweep("sessions")
	require.False(t, result.Coverage.Complete, result)
	require.Zero(t, result.Removed)
	require.NotEqual(t, 3, result.Coverage.Masters)
}
