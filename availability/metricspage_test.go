package availability_test

import (
	"flag"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability"
	"github.com/rollcall-redis/rollcall/internal/docs/metricspage"
	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/lease"
)

var update = flag.Bool("update", false, "write this module's section of docs/reference/metrics.md")

// nobody is never asked.
type nobody struct{ availability.Source }

func (nobody) Clock() *availability.Clock { return nil }

func TestTheMetricsPageShowsTheMetricsOfAvailability(t *testing.T) {
	opt := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true}
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	t.Cleanup(func() { require.NoError(t, rdb.Close()); require.NoError(t, ctl.Close()) })
	r := metricspage.NewRecorder()
	_, err := availability.New(availability.Config{
		Source: nobody{}, Client: rdb, Control: ctl, Layout: guard.Layout{Prefix: "availability:"}, Registerer: r,
	})
	require.NoError(t, err)
	metricspage.Check(t, "../", "Availability", r, *update)
}
