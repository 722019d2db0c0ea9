// Janitor removes what dead owners left in a registry of sockets, for fleets whose servers are not
// in Go, or write the registry plainly. "janitor -h" shows every setting.
package main

import (
	"context"
	"log/slog"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
)

func main() { cli.Main(command()) }

func command() *cli.Command {
	s := new(settings)
	c := &cli.Command{
		Name: "janitor",
		About: `janitor removes from a registry what dead owners left. It is for fleets whose
servers do not embed package janitor: those in Node.js, other languages, or that
write the registry plainly. It has no sockets. Run two or three replicas: one
leads. It needs REDIS_URL, and HEARTBEAT_INTERVAL and HEARTBEAT_TTL as the fleet
has them.`,
		Settings: s.table(),
		Prefixes: prefixes,
		Check:    s.check,
		Notes: `SIGTERM or SIGINT stops it gracefully; a second one at once. Exit status: 0
after a graceful stop, 1 on a failure at run time, 2 on wrong usage or settings.`,
	}
	c.Run = program.Serving(c, &s.Base, func(ctx context.Context, log *slog.Logger) error {
		return serve(ctx, s, log)
	})
	return c
}
