package orphan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/redistest"
)

func FuzzSlotsAreThoseOfRedis(f *testing.F) {
	for _, key := range []string{
		"", "123456789", "{cleanup}:janitor:leader", "a{b}c{d}", "{}a", "{{a}}", "{a", "}a{", "a{}{b}", "\x00\xff",
	} {
		f.Add(key)
	}
	// A server that is no node of a Cluster does not say.
	rdb := redistest.StartCluster(f, 1, 0).Nodes[0].Client()
	f.Fuzz(func(t *testing.T, key string) {
		want, err := rdb.ClusterKeySlot(t.Context(), key).Result()
		require.NoError(t, err)
		require.Equal(t, int(want), slotOf(key))
	})
}
