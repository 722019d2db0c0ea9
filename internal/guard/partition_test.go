package guard_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/slot"
)

// Part of the contract: readers in other languages compute these.
func TestTheKeysOfAPartition(t *testing.T) {
	t.Parallel()
	l := guard.Layout{Prefix: "{rollcall}:"}
	require.Equal(t, "{rollcall:16:00:1}:connections:registry", l.Partition(0, 16).Registry())
	require.Equal(t, "{rollcall:16:05:60}:instance:heartbeat:i", l.Partition(5, 16).Heartbeat("i"))
	require.Equal(t, "{rollcall:16:15:3}:janitor:log", l.Partition(15, 16).Log())
	require.Equal(t, "eu:{x:2:01:0}", guard.Layout{Prefix: "eu:{x}"}.Partition(1, 2).Prefix)
	require.Equal(t, l, l.Partition(0, 1))
	require.Equal(t, "{rollcall}:partitions", l.Partitions())
	// Shared by all partitions, for people.
	of := l.Partition(7, 16)
	require.Equal(t, l.Paused(), of.Paused())
	require.Equal(t, l.Timeline(), of.Timeline())
	require.Equal(t, l.About("i"), of.About("i"))
	require.Equal(t, l.Partitions(), of.Partitions())
}

func TestThePartitionOfADevice(t *testing.T) {
	t.Parallel()
	for imei, want := range map[string]int{"352093081452251": 3, "356307042441013": 13, "123456789": 0x1C3} {
		require.Equal(t, want%16, guard.PartitionOf(imei, 16), imei)
		require.Equal(t, 0, guard.PartitionOf(imei, 1))
	}
	require.Equal(t, 0x1C3, guard.PartitionOf("123456789", 1024), "CRC16 is 0x31C3")
}

func TestPartitionsLieEvenlyOnMasters(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{2, 16, 64} {
		for _, masters := range []int{1, 2, 3, 4, 7} {
			has := make([]int, masters)
			for k := range partitions {
				of := guard.Layout{Prefix: "{rollcall}:"}.Partition(k, partitions)
				require.True(t, of.OneSlot())
				has[slot.Of(of.Registry())*masters/slot.Count]++
			}
			for _, n := range has {
				require.LessOrEqual(t, n, partitions/masters+2, fmt.Sprint(partitions, masters, has))
			}
		}
	}
}
