package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestOnAClusterDevicesAreRoutableSweptAndCommanded(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	rdb := c.Client()
	url := "--redis-url=redis://" + c.Nodes[1].Addr() // one address will do
	one := serving(t, append(quick, url, "--instance-id=one", "--janitor-lease-ttl=1s")...)
	two := serving(t, append(quick, "--redis-url="+c.URL(), "--instance-id=two", "--janitor-lease-ttl=1s")...)
	one.obedient(imei)
	layout := guard.Layout{Prefix: "{rollcall}:"}
	entry := func(imei string) string {
		return rdb.HGet(t.Context(), layout.Partition(guard.PartitionOf(imei, 16), 16).Registry(), imei).Val()
	}
	one.Await(func() bool {
		return entry(imei) == "one" && rdb.Get(t.Context(), layout.Partitions()).Val() == "16"
	})

	d := two.connect("490154203237518")
	_, err := d.Send(t.Context(), teltonika.Codec8, sim.NewTrack(1).Next(1)...)
	require.NoError(t, err)
	one.Await(func() bool {
		leads := one.state().Partitions.Leads
		return entry("490154203237518") == "two" && len(leads)+len(two.state().Partitions.Leads) == 16 &&
			len(leads) > 0 && len(leads) < 16
	})
	stored := rdb.XRange(t.Context(), "telemetry:{teltonika:16:08:61}", "-", "+").Val()
	require.Len(t, stored, 1, "in the stream of the device")
	require.Equal(t, "490154203237518", stored[0].Values["imei"])

	// Each replica has one connection that waits for commands, at one master.
	home := c.Owner(layout.Partition(0, 16).Lease())
	waiting := func(n *redistest.Server) int {
		return strings.Count(n.Client().ClientList(t.Context()).Val(), " flags=b ")
	}
	one.Await(func() bool { return waiting(home) == 2 })
	for _, n := range c.Nodes {
		require.True(t, n == home || waiting(n) == 0)
	}

	var stdout string
	one.Await(func() bool { // it dials once, for three seconds: a slow machine may need longer
		code, out, stderr := command(t, url, imei, "getver")
		t.Log(stderr)
		stdout = out
		return code == exitOK
	})
	require.Equal(t, "did getver\n", stdout)
	code, stdout, stderr := command(t, url, "--queue", imei, "getver")
	require.Equal(t, exitOK, code, stderr)
	require.Equal(t, "did getver\n", stdout)

	// A dead instance's leftovers are swept, whichever partition they are in.
	for k := range 16 {
		require.NoError(t, rdb.HSet(t.Context(), layout.Partition(k, 16).Registry(), "490154203237519", "gone").Err())
	}
	one.Await(func() bool {
		for k := range 16 {
			if rdb.HExists(t.Context(), layout.Partition(k, 16).Registry(), "490154203237519").Val() {
				return false
			}
		}
		return true
	})
	require.Equal(t, "one", entry(imei))
}
