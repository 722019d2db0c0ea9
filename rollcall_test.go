package rollcall_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestEverythingThatIsWrongIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	opt := &redis.Options{Addr: "127.0.0.1:1"}
	for _, c := range []struct {
		of    rollcall.Config
		wrong []string
	}{
		{rollcall.Config{}, []string{"0 of Redis, Sentinel and Cluster"}},
		{rollcall.Config{Redis: opt, Cluster: &redis.ClusterOptions{}}, []string{"2 of Redis, Sentinel and Cluster"}},
		{
			rollcall.Config{Redis: opt, Interval: time.Minute, TTL: 2 * time.Minute, Partitions: 3},
			[]string{"TTL is 2m0s", "Partitions is 3", "hash tag"},
		},
		{rollcall.Config{Redis: opt, Interval: time.Microsecond}, []string{"Interval is 1µs"}},
		{rollcall.Config{Redis: opt, TTL: 25 * time.Hour}, []string{"at most 24h"}},
		{rollcall.Config{Redis: opt, Prefix: "a*:"}, []string{"rollcall: ", "Prefix", "without spaces"}},
		{
			rollcall.Config{Redis: opt, Janitor: rollcall.Janitor{Off: true}, Sweeps: []janitor.Sweeper{nil}},
			[]string{"Sweeps", "would never run"},
		},
		{rollcall.Config{Redis: opt, Instance: "a b"}, []string{"rollcall: ", "Instance"}},
		{rollcall.Config{Redis: opt, Janitor: rollcall.Janitor{RedisShare: 2}}, []string{"rollcall: ", "RedisShare"}},
	} {
		r, err := rollcall.New(c.of)
		require.Nil(t, r)
		for _, text := range c.wrong {
			require.ErrorContains(t, err, text)
		}
	}
	_, err := rollcall.NewReader(rollcall.ReaderConfig{})
	require.ErrorContains(t, err, "0 of Redis, Sentinel and Cluster")
}

// Options as users write them, and as clients return them, are made safe.
func TestAnyOptionsAreSetRight(t *testing.T) {
	t.Parallel()
	of := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialTimeout: time.Hour, ReadTimeout: -1})
	t.Cleanup(func() { _ = of.Close() })
	for name, c := range map[string]rollcall.Config{
		"defaults":     {Redis: &redis.Options{Addr: "127.0.0.1:1"}},
		"of a client":  {Redis: of.Options()},
		"short beats":  {Redis: &redis.Options{Addr: "127.0.0.1:1"}, Interval: 100 * time.Millisecond},
		"retries":      {Redis: &redis.Options{Addr: "127.0.0.1:1", MaxRetries: 5}},
		"replicas":     {Sentinel: &redis.FailoverOptions{MasterName: "m", RouteRandomly: true}},
		"a Cluster":    {Cluster: &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadOnly: true}},
		"no partition": {Cluster: &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}, Partitions: 1},
	} {
		r, err := rollcall.New(c)
		require.NoError(t, err, name)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, r.Run(ctx), name)
		require.ErrorContains(t, r.Run(ctx), "Run was called before", name)
	}
}

func TestAReplicaServesStopsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	opt, prefix := redistest.Shared(t).Options(), redistest.Prefix(t)
	r, err := rollcall.New(rollcall.Config{Redis: opt, Prefix: prefix, Instance: "a"})
	require.NoError(t, err)
	require.ErrorContains(t, r.Ready(), "no heartbeat has landed")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	<-r.Started()
	require.Eventually(t, func() bool { return r.Ready() == nil }, 30*time.Second, time.Millisecond,
		"it hears its own messages too")

	closed := make(chan struct{})
	claim := r.Register("alice", rollcall.Socket{Close: sync.OnceValue(func() error { close(closed); return nil })})
	require.NoError(t, claim.Wait(t.Context()))
	reader, err := rollcall.NewReader(rollcall.ReaderConfig{Redis: opt, Prefix: prefix})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, reader.Close()) })
	for _, d := range []rollcall.Directory{r, reader} {
		owner, err := d.Lookup(t.Context(), "alice")
		require.NoError(t, err)
		require.Equal(t, rollcall.Owner{Instance: "a", Live: true}, owner)
		_, err = d.Lookup(t.Context(), "bob")
		require.ErrorIs(t, err, rollcall.ErrNotFound)
		many, err := d.LookupMany(t.Context(), []string{"alice", "bob"})
		require.NoError(t, err)
		require.Len(t, many, 1)
		owners, err := d.Owners(t.Context())
		require.NoError(t, err)
		require.Len(t, owners, 1)
		for id, err := range d.Holdings(t.Context(), "a") {
			require.NoError(t, err)
			require.Equal(t, "alice", id)
		}
	}
	require.Equal(t, "a", r.Status().Registry.Instance)
	require.NoError(t, r.Pause(t.Context(), janitor.Pause{Who: "me"}))
	require.NoError(t, r.Resume(t.Context()))

	stop()
	<-closed
	claim.Release()
	require.NoError(t, <-ended)
	require.ErrorIs(t, claim.Err(), rollcall.ErrStopping)
	require.ErrorIs(t, r.Ready(), rollcall.ErrStopping)
	_, err = reader.Lookup(t.Context(), "alice")
	require.ErrorIs(t, err, rollcall.ErrNotFound)
}

func TestWithoutAJanitorOthersSweep(t *testing.T) {
	t.Parallel()
	r, err := rollcall.New(rollcall.Config{
		Redis: redistest.Shared(t).Options(), Prefix: redistest.Prefix(t), Janitor: rollcall.Janitor{Off: true},
	})
	require.NoError(t, err)
	require.Nil(t, r.Status().Janitor)
	_, err = r.Sweep(t.Context(), janitor.Request{})
	for _, err := range []error{
		err, r.Resume(t.Context()), r.Resign(t.Context()), r.Pause(t.Context(), janitor.Pause{}),
	} {
		require.ErrorIs(t, err, rollcall.ErrNoJanitor)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, errors.New("over"))
	defer cancel()
	require.NoError(t, r.Run(ctx))
}
