package slot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/slot"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func TestTheChecksumIsTheOneOfTheSpecification(t *testing.T) {
	t.Parallel()
	require.Equal(t, uint16(0x31C3), slot.CRC16("123456789"))
}

func FuzzSlotsAreThoseOfRedis(f *testing.F) {
	for _, key := range []string{
		"", "123456789", "{cleanup}:janitor:leader", "a{b}c{d}", "{}a", "{{a}}", "{a", "}a{", "a{}{b}", "\x00\xff",
	} {
		f.Add(key)
	}
	// Only a node of a Cluster answers.
	rdb := redistest.StartCluster(f, 1, 0).Nodes[0].Client()
	f.Fuzz(func(t *testing.T, key string) {
		want, err := rdb.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		require.Equal(t, int(want), slot.Of(key))
	})
}
