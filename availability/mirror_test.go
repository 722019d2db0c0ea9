package availability

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
)

func TestAConfigurationIsToldAllThatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Tick: -1, ReconcileInterval: -1, OfflineInterval: -1, HeartbeatInterval: -1, Fallbacks: -1})
	for _, want := range []string{
		"Source is missing", "unfit Client", "unfit Control", "Tick is -1ns", "ReconcileInterval is -1ns",
		"OfflineInterval is -1ns", "HeartbeatInterval is -1ns", "Fallbacks is -1",
	} {
		require.ErrorContains(t, err, want)
	}
	cluster := redis.NewClusterClient(lease.ClusterOptions(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}))
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })
	_, err = New(Config{Source: newFake(), Client: cluster, Control: cluster})
	require.EqualError(t, err, `availability: Layout.Prefix "" has no hash tag such as {name}:, which a Cluster needs`)
	_, err = New(Config{Source: newFake(), Client: cluster, Control: cluster, Layout: guard.Layout{Prefix: "{a}:"}})
	require.NoError(t, err)
}

// The names are a contract with services that read them.
func TestTheNamesOfKeysAreFixed(t *testing.T) {
	t.Parallel()
	k := keys{}
	require.Equal(t, []string{
		"mitras:online", "mitras:deactivated", "mitras:version", "mitras:seeded",
	}, k.all())
	require.Equal(t, "mitra:capacity:x", k.capacity("x"))
	require.Equal(t, "mitra:heartbeat:x", k.heartbeat("x"))
	require.Equal(t, "availability:snapshot", k.snapshot())
	require.Equal(t, "config:invalidate", k.invalidate())
}

func TestOnAClusterAllIsInOneSlot(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	client := func() redis.UniversalClient {
		rdb := redis.NewClusterClient(lease.ClusterOptions(c.Options()))
		t.Cleanup(func() { _ = rdb.Close() })
		return rdb
	}
	source := newFake(online("a"), silent("silent"))
	m, err := New(Config{
		Source: source, Client: client(), Control: client(), Layout: guard.Layout{Prefix: "{availability}:"},
		Tick: 10 * time.Millisecond,
	})
	r := &rig{Assertions: require.New(t), t: t, Mirror: m, source: source, ctx: t.Context()}
	r.NoError(err)
	m.clocks.compared = true
	r.seeded()
	beat, err := r.Heartbeat(r.ctx, "a")
	r.NoError(err)
	r.Equal(BeatKept, beat)
	r.did(r.Deactivate(r.ctx, "silent"))
	r.Equal(Answer[[]Available]{[]Available{{"a", 0}}, FromValkey, 0}, r.found(0))
	r.Equal(Answer[int]{1, FromValkey, 0}, r.counted())
	r.Equal(Snapshot{true, 1}, r.snapshots().Value)
	r.Empty(r.reconciled())
}
