// Ingest accepts Teltonika trackers, stores their telemetry in Redis, keeps the registry of the
// replica that holds each device, and takes part in sweeping out the remains of dead replicas.
// Without a command it serves, on the Redis that REDIS_URL names; "ingest -h" shows every
// setting. "ingest command" sends a command to a device of a running fleet.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

func main() { cli.Main(ingest()) }

func ingest() *cli.Command {
	s := new(settings)
	c := &cli.Command{
		Name: "ingest",
		About: `ingest accepts Teltonika trackers, stores their telemetry in Redis, keeps the
registry of who holds which device, and sweeps out what dead replicas left.
Without a command it serves, and needs REDIS_URL.

  ingest command    sends a device a command, waits for its outcome
  ingest simulate   runs a fleet of simulated trackers`,
		Settings: s.table(),
		Prefixes: prefixes,
		Check:    s.check,
		Notes: `SIGTERM or SIGINT stops it gracefully; a second one at once. Exit status: 0
after a graceful stop, 1 on a failure at run time, 2 on wrong usage or settings.`,
		Commands: []*cli.Command{sendCommand(), runSimulate()},
	}
	c.Run = program.Serving(c, &s.Base, func(ctx context.Context, log *slog.Logger) error {
		return serve(ctx, s, log)
	})
	return c
}

// startBound is how long the device listener waits for the registry to reach Redis and to hand
// back the claims of an earlier process of this instance.
const startBound = 15 * time.Second

// undivided asks before the first beat, whose end would be a death.
func (r *replica) undivided(run program.Run) program.Run {
	return func(ctx context.Context) error {
		if _, err := r.refuseDivided(ctx); err != nil {
			return err
		}
		return run(ctx)
	}
}

// checkDivided asks until Redis answers.
func (r *replica) checkDivided(ctx context.Context) error {
	for {
		known, err := r.refuseDivided(ctx)
		if known || err != nil || !wait.For(ctx, r.settings.HeartbeatInterval/10) {
			return err
		}
	}
}

// refuseDivided returns an error if the fleet's registry is divided and this replica's is not:
// nobody would find its devices. A registry with a prefix detects this itself. known is
// false if Redis did not answer.
func (r *replica) refuseDivided(ctx context.Context) (known bool, err error) {
	if r.Registry.Layout() == divided {
		return true, nil
	}
	n, err := partition.Count(ctx, r.Clients.Control, divided)
	if n > 1 {
		return true, fmt.Errorf("%w: %s says %d; set REGISTRY_PARTITIONS to that, or, if that fleet is no "+
			"more, delete the key", partition.ErrPartitionsDiffer, divided.Partitions(), n)
	}
	return err == nil || redis.IsPermissionError(err), nil // a user without that right is in no such fleet
}

// allowedEvery is how often the set of allowed devices is looked at: an empty one is a finding.
const allowedEvery = 10 * time.Second

func (r *replica) countAllowed(ctx context.Context) error {
	for pause := time.Duration(0); r.settings.deviceAuthority == allowedSet && wait.For(ctx, pause); pause = allowedEvery {
		n, err := r.Clients.Data.SCard(ctx, gateway.Allowed).Result()
		r.nobody.Store(err == nil && n == 0)
	}
	return nil
}

func (r *replica) serveDevices(ctx context.Context) error {
	if !r.settings.devices() {
		return nil
	}
	select {
	case <-r.Registry.Started():
	case <-time.After(startBound):
		r.Log.Warn("serving devices although the registry has not started")
	case <-ctx.Done():
		return nil
	}
	lns, err := r.listen(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	return r.gateway.Serve(ctx, lns...)
}

// listen opens none if one fails.
func (r *replica) listen(ctx context.Context) (lns []net.Listener, err error) {
	s := r.settings
	for _, at := range []struct {
		setting, addr, message string
		proxied, overTLS       bool
	}{
		{"INGEST_ADDR", s.ingestAddr, "listening for devices", false, false},
		{"INGEST_TLS_ADDR", s.ingestTLSAddr, "listening for devices by TLS", false, true},
		{"INGEST_PROXY_ADDR", s.ingestProxyAddr, "listening for devices behind proxies", true, s.ingestProxyTLS},
	} {
		if at.addr == cli.Off {
			continue
		}
		ln, err := gateway.Listen(ctx, at.addr)
		if err != nil {
			for _, ln := range lns {
				_ = ln.Close()
			}
			return nil, fmt.Errorf("ingest: %s: %w", at.setting, err)
		}
		r.Log.Info(at.message, "addr", ln.Addr().String())
		if at.proxied {
			ln = r.gateway.Proxied(ln, s.ingestProxyTrusted)
		}
		if at.overTLS {
			ln = r.gateway.OverTLS(ln)
		}
		lns = append(lns, ln)
	}
	r.devices.Store(lns[0].Addr().(*net.TCPAddr))
	return lns, nil
}
