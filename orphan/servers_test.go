package orphan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

// noFull has a Cluster serve the slots that it has while a master is down.
var noFull = []string{"--cluster-require-full-coverage", "no"}

func TestAPlainClientHasOneServer(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx, rdb := t.Context(), s.Client()
	before, err := masters(ctx, rdb, nodeTimeout)
	require.NoError(t, err)
	require.NoError(t, before.fault)
	require.Equal(t, 1, before.of)
	require.Len(t, before.masters, 1)
	require.Same(t, &before.masters[0], before.at("any"))
	at, err := now(ctx, plainly{rdb}, before.masters[0])
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)

	again, err := masters(ctx, rdb, nodeTimeout)
	require.NoError(t, err)
	require.NoError(t, before.changed(again))
	s.Restart()
	again, err = masters(ctx, rdb, nodeTimeout)
	require.NoError(t, err)
	require.ErrorContains(t, before.changed(again), "restarted")

	s.Kill()
	_, err = masters(ctx, rdb, nodeTimeout)
	require.Error(t, err)
	_, err = subscribers(ctx, rdb, []string{"a"})
	require.Error(t, err)
	_, err = channelsMatch(ctx, rdb, "*")
	require.Error(t, err)
}

func TestEachKeyIsOnTheMasterThatTheTopologyNames(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	ctx, rdb := t.Context(), c.Client()
	all, err := masters(ctx, rdb, nodeTimeout)
	require.NoError(t, err)
	require.NoError(t, all.fault)
	require.Equal(t, 3, all.of)
	require.Len(t, all.masters, 3)
	found := map[string]bool{}
	for i := range 100 {
		key := fmt.Sprint("k", i)
		require.NoError(t, rdb.Set(ctx, key, i, 0).Err())
		// Through the node's own client: it would answer MOVED for a key of another.
		require.Equal(t, fmt.Sprint(i), all.at(key).client.Get(ctx, key).Val())
		found[all.at(key).addr] = true
	}
	require.Len(t, found, 3)

	again, err := masters(ctx, rdb, nodeTimeout)
	require.NoError(t, err)
	require.NoError(t, all.changed(again))

	// A replica leads: the slots are served by another server, which may not have all keys.
	c.TakeOver(c.Nodes[3])
	c.AwaitOK()
	again, err = masters(ctx, rdb, nodeTimeout)
	require.NoError(t, err)
	require.Error(t, all.changed(again))
}

func TestAMasterThatDoesNotAnswerIsNotCovered(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*redistest.Server){
		"killed": (*redistest.Server).Kill, "stopped": (*redistest.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 0, noFull...)
			ctx, rdb := t.Context(), c.Client()
			before, err := masters(ctx, rdb, nodeTimeout)
			require.NoError(t, err)
			lost := c.Owner("k")
			stop(lost)

			after, err := masters(ctx, rdb, nodeTimeout)
			require.NoError(t, err)
			require.Equal(t, 3, after.of)
			require.Len(t, after.masters, 2)
			require.ErrorContains(t, after.fault, "2 of 3 masters answer")
			require.ErrorContains(t, after.fault, lost.Addr())
			require.Nil(t, after.at("k"))
			require.ErrorIs(t, before.changed(after), after.fault)
			require.Error(t, after.changed(before), "it came back during the pass")
			for _, s := range after.masters {
				_, err := now(ctx, plainly{rdb}, s)
				require.NoError(t, err)
			}
		})
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		c := redistest.StartCluster(t, 3, 0)
		rdb := c.Client()
		for _, n := range c.Nodes {
			n.Kill()
		}
		_, err := masters(t.Context(), rdb, nodeTimeout)
		require.Error(t, err)
	})
}

func TestASlotOnTheMoveIsAFaultAndOneThatHasMovedAChange(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	ctx, rdb := t.Context(), c.Client()
	require.NoError(t, rdb.Set(ctx, "k", 1, 0).Err())
	look := func() *topology {
		all, err := masters(ctx, rdb, nodeTimeout)
		require.NoError(t, err)
		return all
	}
	before, from := look(), c.Owner("k")
	to := c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}

	finish := c.BeginMove("k", to)
	during := look()
	require.ErrorContains(t, during.fault, "on the move")
	require.ErrorIs(t, before.changed(during), during.fault)
	finish()
	after := look()
	require.NoError(t, after.fault)
	require.Equal(t, to.Addr(), after.at("k").addr)
	require.Error(t, before.changed(after))
	require.Error(t, during.changed(after))

	c.BeginMove("k", from)()
	back := look()
	require.NoError(t, back.fault)
	require.Equal(t, from.Addr(), back.at("k").addr)
	require.Error(t, before.changed(back), "there and back is not nothing")
}

// subscribe subscribes on one node, and returns when the node knows.
func subscribe(t *testing.T, node *redistest.Server, channel string) {
	sub := node.Client().Subscribe(t.Context(), channel)
	t.Cleanup(func() { _ = sub.Close() })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
}

func TestSubscribersAreCountedOnEveryNode(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 2, 1, noFull...)
	empty := c.Add()
	ctx, rdb := t.Context(), c.Client()
	count := func() map[string]int64 {
		sum, err := subscribers(ctx, rdb, []string{"$a", "$b", "$c"})
		require.NoError(t, err)
		return sum
	}
	require.Equal(t, map[string]int64{"$a": 0, "$b": 0, "$c": 0}, count())
	all, err := masters(ctx, rdb, nodeTimeout)
	require.NoError(t, err)
	require.NoError(t, all.fault)
	require.Equal(t, 2, all.of, "one without slots has nothing to read")
	found, err := channelsMatch(ctx, rdb, "$*")
	require.NoError(t, err)
	require.False(t, found)

	subscribe(t, c.Nodes[0], "$a")
	subscribe(t, c.Nodes[1], "$a")
	subscribe(t, c.Nodes[3], "$b") // a replica
	subscribe(t, empty, "$c")      // which CLUSTER SLOTS does not name
	require.Equal(t, map[string]int64{"$a": 2, "$b": 1, "$c": 1}, count())
	for pattern, want := range map[string]bool{"$*": true, "$b": true, "$c": true, "$d": false} {
		found, err := channelsMatch(ctx, rdb, pattern)
		require.NoError(t, err)
		require.Equal(t, want, found, pattern)
	}
}

func TestALikelyChannelSparesTheList(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx, rdb := t.Context(), s.Client()
	subscribe(t, s, "$a")
	listed := func() bool {
		return strings.Contains(rdb.Info(ctx, "commandstats").Val(), "cmdstat_pubsub|channels")
	}
	for _, c := range []struct {
		names  []string
		listed bool
	}{{[]string{"x", "a"}, false}, {[]string{"x"}, true}, {nil, true}} {
		require.NoError(t, rdb.ConfigResetStat(ctx).Err())
		found, err := channelsMatch(ctx, rdb, "$*", likelyChannels("$*", c.names)...)
		require.NoError(t, err)
		require.True(t, found)
		require.Equal(t, c.listed, listed(), c.names)
	}
	require.Equal(t, []string{"p:1:q"}, likelyChannels("p:*:q", []string{"1"}))
	for _, pattern := range []string{"*:*", "a?*", "[ab]*", `\**`, "plain"} {
		require.Empty(t, likelyChannels(pattern, []string{"1"}), pattern)
	}
}

func TestANodeThatDoesNotAnswerMayHaveSubscribers(t *testing.T) {
	t.Parallel()
	for name, i := range map[string]int{"master": 0, "replica": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, 1, noFull...)
			ctx, rdb := t.Context(), c.Client()
			subscribe(t, c.Nodes[i], "$a")
			subscribe(t, c.Nodes[1], "$b")
			_, err := subscribers(ctx, rdb, []string{"$a"}) // the client knows the nodes
			require.NoError(t, err)
			c.Nodes[i].Stop()
			refused := func(when string) {
				_, err := subscribers(ctx, rdb, []string{"$a"})
				require.ErrorContains(t, err, c.Nodes[i].Addr(), when)
				_, err = channelsMatch(ctx, rdb, "$a")
				require.ErrorContains(t, err, c.Nodes[i].Addr(), when)
				found, err := channelsMatch(ctx, rdb, "$b")
				require.NoError(t, err)
				require.True(t, found, when)
			}
			refused("at once")
			// Then CLUSTER SLOTS does not name it any more.
			other := c.Nodes[1].Client()
			require.Eventually(t, func() bool {
				for line := range strings.Lines(other.ClusterNodes(ctx).Val()) {
					if strings.Contains(line, c.Nodes[i].Addr()) && strings.Contains(line, "fail ") {
						return true
					}
				}
				return false
			}, time.Minute, 20*time.Millisecond)
			refused("when the others call it failed")
		})
	}
}

func TestWhatIsNoAnswerOfClusterNodesIsRefused(t *testing.T) {
	t.Parallel()
	id := strings.Repeat("a", 40)
	good := id + " 127.0.0.1:1@2,host myself,master - 0 0 7 connected 0-5 9 [93->-b]\n"
	all, self, err := parseNodes(good)
	require.NoError(t, err)
	require.Equal(t, id, self)
	require.Equal(t, []member{{
		id: id, addr: "127.0.0.1:1", self: 1, epoch: 7, slots: [][2]int{{0, 5}, {9, 9}},
		moves: []string{"[93->-b]"}, claim: id + " 7 0-5 9 [93->-b]",
	}}, all)
	for name, text := range map[string]string{
		"empty":         "",
		"nobody itself": strings.Replace(good, "myself,", "", 1),
		"cut":           good[:60],
		"no epoch":      strings.Replace(good, " 7 ", " x ", 1),
		"no slot":       strings.Replace(good, "0-5", "0-x", 1),
		"too high":      strings.Replace(good, "0-5", "0-16384", 1),
		"backwards":     strings.Replace(good, "0-5", "5-0", 1),
	} {
		_, _, err := parseNodes(text)
		require.Error(t, err, name)
	}
}
