// Availability answers who can take work now: which workers (mitras) are online, active, recently
// heard from and below their capacity. Without a command it serves; "availability -h" lists every
// setting.
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
		Name: "availability",
		About: `availability tells who can take work now: which workers (mitras) are online,
active, heard of lately and below their capacity. PostgreSQL is the truth; Redis
or Valkey has a mirror of it, which answers reads and takes heartbeats. Run any
number of replicas: all serve, and one leads the sweeps. Without a command it
serves, and needs REDIS_URL, DATABASE_URL, and JWT_HS256_SECRET or JWT_JWKS.

  availability migrate    makes what the database lacks, and ends
  availability simulate   plays a workforce against replicas`,
		Settings: s.table(),
		Prefixes: prefixes,
		Check:    s.check,
		Notes: `A replica starts whether or not Redis and PostgreSQL answer. It says so, tries
again, and serves what the other can answer; /readyz says why it is not ready. A
PostgreSQL that answers and refuses (a password, a right, a missing table with
MIGRATE=off) ends it.

SIGTERM or SIGINT stops it gracefully; a second one at once. Exit status: 0
after a graceful stop, 1 on a failure at run time, 2 on wrong usage or settings.`,
		Commands: commands(),
	}
	c.Run = program.Serving(c, &s.Base, func(ctx context.Context, log *slog.Logger) error {
		return serve(ctx, s, log)
	})
	return c
}
