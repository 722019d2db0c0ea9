package janitor_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestTheNamespaceIsThatOfAllMetrics(t *testing.T) {
	t.Parallel()
	opt := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true} // never asked
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	defer rdb.Close()
	defer ctl.Close()
	for namespace, prefix := range map[string]string{"": "janitor_", "chat": "chat_janitor_"} {
		reg, err := registry.New(registry.Config{Client: rdb, Control: ctl})
		require.NoError(t, err)
		metrics := prometheus.NewRegistry()
		_, err = janitor.New(janitor.Config{
			Client: rdb, Control: ctl, Registry: reg, Registerer: metrics, Namespace: namespace,
		})
		require.NoError(t, err)
		families, err := metrics.Gather()
		require.NoError(t, err)
		require.NotEmpty(t, families)
		for _, f := range families {
			require.True(t, strings.HasPrefix(f.GetName(), prefix), f.GetName())
		}
	}
}
