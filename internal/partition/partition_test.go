package partition_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/registry"
)

func sizes(t *testing.T, rdb redis.UniversalClient, partitions int) (all []int, total int) {
	t.Helper()
	for k := range partitions {
		l := guard.Layout{Prefix: "{rollcall}:"}.Partition(k, partitions)
		n, err := rdb.HLen(t.Context(), l.Registry()).Result()
		require.NoError(t, err)
		all, total = append(all, int(n)), total+int(n)
	}
	return all, total
}

func TestOneRegistryOverACluster(t *testing.T) {
	t.Parallel()
	const partitions, devices = 8, 200
	c := redistest.StartCluster(t, 3, 0)
	client := onCluster(c)
	rdb := redis.NewClusterClient(c.Options())
	defer rdb.Close()
	replicas := map[string]*replica{}
	for i, id := range []string{"a", "b", "c", "d"} {
		replicas[id] = start(t, client, partitions, id)
		replicas[id].claims(i*devices, devices)
	}
	all, total := sizes(t, rdb, partitions)
	require.Equal(t, 4*devices, total)
	for _, n := range all {
		require.Positive(t, n)
	}
	owner, err := replicas["a"].registry.Lookup(t.Context(), imei(3*devices))
	require.NoError(t, err)
	require.Equal(t, registry.Owner{Instance: "d", Live: true}, owner)
	status := replicas["d"].registry.Status()
	require.Equal(t, []int{devices, devices}, []int{status.Held, int(status.Registered)})
	many, err := replicas["a"].registry.LookupMany(t.Context(), []string{imei(0), imei(devices), imei(3 * devices), "nobody"})
	require.NoError(t, err)
	require.Equal(t, map[string]registry.Owner{
		imei(0): {Instance: "a", Live: true}, imei(devices): {Instance: "b", Live: true}, imei(3 * devices): owner,
	}, many)
	owners, err := replicas["a"].registry.Owners(t.Context())
	require.NoError(t, err)
	require.Len(t, owners, 4)
	held := 0
	for _, err := range replicas["a"].registry.Holdings(t.Context(), "b") {
		require.NoError(t, err)
		held++
	}
	require.Equal(t, devices, held)

	// Each partition has one leader, and no replica leads more than its share plus two.
	eventually(t, func() bool {
		led := map[int]int{}
		for _, r := range replicas {
			leads := r.janitor.Leads()
			if len(leads) > partitions/len(replicas)+2 {
				return false
			}
			for _, k := range leads {
				led[k]++
			}
		}
		return len(led) == partitions
	})

	replicas["b"].kill()
	delete(replicas, "b")
	eventually(t, func() bool {
		_, total := sizes(t, rdb, partitions)
		return total == 3*devices
	})
	for id, from := range map[string]int{"a": 0, "c": 2 * devices, "d": 3 * devices} {
		for i := range devices {
			var owner registry.Owner
			eventually(t, func() bool { // this client's deadline is short
				owner, err = replicas["a"].registry.Lookup(t.Context(), imei(from+i))
				return err == nil
			})
			require.Equal(t, id, owner.Instance)
		}
	}
	eventually(t, func() bool {
		_, err = replicas["a"].registry.Lookup(t.Context(), imei(devices))
		return errors.Is(err, registry.ErrNotRegistered)
	})
	eventually(t, func() bool { // others have its leases too by now
		led := 0
		for _, r := range replicas {
			led += len(r.janitor.Leads())
		}
		return led == partitions
	})
}

func TestAPauseHoldsEachPartition(t *testing.T) {
	t.Parallel()
	const partitions, devices = 4, 40
	server := redistest.Start(t)
	client, rdb := on(server.Options()), server.Client()
	a, b := start(t, client, partitions, "a"), start(t, client, partitions, "b")
	a.claims(0, devices)
	b.claims(devices, devices)
	require.NoError(t, a.janitor.Pause(t.Context(), janitor.Pause{Who: "ann", Why: "a test"}))
	b.kill()
	eventually(t, func() bool { // all lead, know that b is silent, and hold
		reports, err := a.janitor.Sweep(t.Context(), janitor.Request{Sweep: "owners"})
		return err == nil && len(a.janitor.Leads()) == partitions && len(reports) == 1 &&
			reports[0].Outcome == janitor.Held && reports[0].Reason == "paused" && reports[0].Scanned == 2*partitions
	})
	_, total := sizes(t, rdb, partitions)
	require.Equal(t, 2*devices, total)
	require.NoError(t, a.janitor.Resume(t.Context()))
	eventually(t, func() bool {
		_, total := sizes(t, rdb, partitions)
		return total == devices && a.janitor.Status().Evicted == devices // counted after the delete
	})
}

func TestNothingIsSweptWhileTheMasterThatHasThePauseIsAway(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	layout, home := guard.Layout{Prefix: "{rollcall}:"}, c.Owner("{rollcall}:janitor:paused")
	var there *redistest.Server
	var of guard.Layout
	for k := range 4 {
		if keys := layout.Partition(k, 4); c.Owner(keys.Registry()) != home {
			there, of = c.Owner(keys.Registry()), keys
		}
	}
	a := start(t, onCluster(c), 4, "a")
	<-a.registry.Started()
	eventually(t, func() bool { return len(a.janitor.Leads()) == 4 })

	home.Kill()
	ctx, rdb := t.Context(), there.Client()
	require.NoError(t, rdb.HSet(ctx, of.Registry(), "1", "dead").Err())
	require.NoError(t, rdb.SAdd(ctx, of.Devices("dead"), "1").Err())
	require.NoError(t, rdb.SAdd(ctx, of.Roster(), "dead").Err())
	eventually(t, func() bool {
		return slices.ContainsFunc(a.janitor.Status().Sweeps, func(r janitor.Report) bool {
			return r.Outcome == janitor.Held && r.Reason == "pause_unknown"
		})
	})
	require.True(t, rdb.HExists(ctx, of.Registry(), "1").Val())
	home.Restart()
	eventually(t, func() bool { return !rdb.HExists(ctx, of.Registry(), "1").Val() })
}

func TestAReplicaWithAnotherNumberOfPartitionsEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	stands := func() string { return server.Client().Get(t.Context(), "{rollcall}:partitions").Val() }
	for _, fleet := range []int{4, 1} {
		a := start(t, on(server.Options()), fleet, "a")
		<-a.registry.Started()
		eventually(t, func() bool { return stands() == strconv.Itoa(fleet) })
		for _, other := range []int{8, 5 - fleet} {
			b := start(t, on(server.Options()), other, "b")
			require.ErrorIs(t, <-b.ended, partition.ErrPartitionsDiffer)
		}
		// A lost number is restored, and an overwritten one ends nobody.
		require.NoError(t, server.Client().Del(t.Context(), "{rollcall}:partitions").Err())
		eventually(t, func() bool { return stands() == strconv.Itoa(fleet) })
		require.Empty(t, a.ended)
		a.stop()
		require.NoError(t, server.Client().FlushAll(t.Context()).Err())
	}
}

func TestOnePartitionHasTheKeysAndMetricsOfNone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := start(t, on(server.Options()), 1, "a")
	a.claims(0, 1)
	require.Equal(t, "a", server.Client().HGet(t.Context(), "{rollcall}:connections:registry", imei(0)).Val())
	eventually(t, func() bool { return server.Client().Get(t.Context(), "{rollcall}:partitions").Val() == "1" })
	families, err := a.metrics.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				require.NotEqual(t, "partition", l.GetName())
			}
		}
	}
}

func TestWhatCannotBeDividedIsRefused(t *testing.T) {
	t.Parallel()
	c := registry.Config{Layout: registry.Layout{Prefix: "{rollcall}:"}}
	for _, n := range []int{0, -1, 3, 12, 2048} {
		_, err := partition.NewRegistry(c, n)
		require.ErrorContains(t, err, "must be a power of two from 1 to 1024")
	}
	_, err := partition.NewRegistry(registry.Config{}, 2)
	require.ErrorContains(t, err, "no hash tag")
	_, err = partition.NewRegistry(c, 2)
	require.ErrorContains(t, err, "unsafe client")
	require.False(t, errors.Is(err, partition.ErrPartitionsDiffer))
}
