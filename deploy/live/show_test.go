package live

import (
	"flag"
	"fmt"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
)

// watched is for make fleet.
var watched = flag.Bool("watched", false, "leave TestShow's fleet running until an interrupt")

// pace can be followed by an onlooker.
var pace = []string{
	"HEARTBEAT_INTERVAL=2s", "HEARTBEAT_TTL=6s", "JANITOR_INTERVAL=10s", "JANITOR_LEASE_TTL=3s",
	"SHUTDOWN_GRACE=3s", "ADMIN_TOKEN=" + secret,
}

// TestShow is a small fleet with simulated devices, and a Prometheus with the alerts, to look at.
// If nobody does, one replica dies, and its devices go elsewhere.
func TestShow(t *testing.T) {
	t.Parallel()
	const replicas, devices = 3, 200
	r := newRig(t)
	r.several(replicas, "ingest", pace...)
	file := filepath.Join(t.TempDir(), "alerts.yml")
	require.NoError(t, alerts(t).Of("ingest").Write(file))
	r.watch(file)
	r.devices(sim.Config{Devices: devices, Interval: 5 * time.Second, LadderUnit: time.Second})
	if *watched {
		ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		r.describe()
		<-ctx.Done()
		return
	}
	r.await("all devices are held", func() bool { return r.is(devices, "sum(teltonika_registry_held)") })
	r.jobs["ingest"][0].Kill()
	r.await("one has died", func() bool { return r.is(replicas-1, "sum(up)") })
	r.await("its devices are elsewhere", func() bool { return r.is(devices, "sum(teltonika_registry_held)") })
}

func (r *rig) describe() {
	for _, p := range r.jobs["ingest"] {
		fmt.Printf("page        http://%s/   %s, pid %d\n", p.http, p.id, p.PID())
	}
	fmt.Printf(`Prometheus  %s/alerts
Redis       %s
token       %s   for what changes something

kill -9 %-8d  one replica dies: within 10 s its devices are elsewhere, and its entries gone
Ctrl-C            ends everything
`, r.prom.URL, r.redisURL(), secret, r.jobs["ingest"][0].PID())
}
