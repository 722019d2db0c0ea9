package main

import (
	"crypto/tls"
	"crypto/x509"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/commands"
	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/internal/docs/metricspage"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

func TestTheMetricsPageShowsTheMetricsOfIngest(t *testing.T) {
	t.Parallel()
	opt := &redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, ContextTimeoutEnabled: true} // never asked
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	t.Cleanup(func() { require.NoError(t, rdb.Close()); require.NoError(t, ctl.Close()) })
	reg, err := registry.New(registry.Config{Client: rdb, Control: ctl, Namespace: "teltonika"})
	require.NoError(t, err)

	r := metricspage.NewRecorder()
	_, err = janitor.New(janitor.Config{
		Client: rdb, Control: ctl, Registry: reg, Registerer: r,
		Sweeps: []janitor.Sweeper{commands.NewSweep(reg.Layout())},
	})
	require.NoError(t, err)
	metricspage.Check(t, "../../", "The leader's side", r, *update)

	r = metricspage.NewRecorder()
	sockets := gateway.New(gateway.Config{
		Register: func(imei string, end func() error) gateway.Claim {
			return reg.Register(imei, registry.Socket{Close: end})
		},
		Client:     rdb,
		Registerer: r, Certificate: func() *tls.Certificate { return &tls.Certificate{Leaf: new(x509.Certificate)} },
	})
	metricspage.Check(t, "../../", "Device sockets", r, *update)

	r = metricspage.NewRecorder()
	commands.New(commands.Config{
		Instance: reg.Instance(), Layout: reg.Layout(), Devices: sockets, Lookup: reg.Lookup,
		Client: rdb, Blocking: rdb, Registerer: r,
	})
	metricspage.Check(t, "../../", "Commands to devices", r, *update)
}
