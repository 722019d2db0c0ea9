// Ingest accepts Teltonika trackers, stores their telemetry in Redis, keeps the registry of the
// replica that holds each device, and takes part in sweeping out the remains of dead replicas.
// Without a command it serves, on the Redis that REDIS_URL names; "ingest -h" shows every
// setting. "ingest command" sends a command to a device of a running fleet.
package main

import (
	"context"
	"log/slog"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
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
