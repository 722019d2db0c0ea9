// Availability answers who can take work now: which workers (mitras) are online, active, recently
// heard from and below their capacity. Without a command it serves; "availability -h" lists every
// setting.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/rollcall-redis/rollcall/availability/postgres"
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

func commands() []*cli.Command { return []*cli.Command{simulate(), migrate()} }

// migrate is for a role that may create objects, when the service's may not.
func migrate() *cli.Command {
	s := new(settings)
	return &cli.Command{
		Name: "availability migrate",
		About: `availability migrate makes what the database lacks, and ends. Replicas with MIGRATE=off
start only when that is done. The role needs the rights to create in the schema, and
to own the tables that lack something. What it locks: docs/availability.md.
It corrects states that do not match the tables, and lists how rows may change without
a trigger.`,
		Settings: []cli.Setting{
			{Name: "DATABASE_URL", Secret: true, Required: true, Value: s.parseDatabase,
				Meaning: "`postgres://user:password@host:5432/database`, of PostgreSQL 15 or newer, with that role"},
			s.databasePasswordRow(),
		},
		Run: func(ctx context.Context, stdout, _ io.Writer) (err error) {
			var opts []postgres.Option
			if password, _, err := s.databasePassword(); err != nil {
				return err
			} else if password != nil {
				opts = append(opts, postgres.Password(password))
			}
			source, err := postgres.Open(ctx, string(s.databaseURL), opts...)
			if err != nil {
				return err
			}
			defer source.Close()
			if err := source.Migrate(ctx); err != nil {
				return err
			}
			if err := source.Check(ctx); errors.Is(err, postgres.ErrLacking) {
				return fmt.Errorf("%w: somebody has dropped or disabled it since it was made", err)
			} else if err != nil {
				return err
			}
			return lookBehind(ctx, source, stdout)
		},
		Notes: `It may be run again: what is there stays. Exit status: 0 when the database has all, 1
if it does not, 2 on wrong arguments.`,
	}
}

// lookBehind repairs states that are wrong because of rows no trigger saw, and lists how such rows
// can appear.
func lookBehind(ctx context.Context, source *postgres.Source, stdout io.Writer) error {
	repaired, err := source.Repair(ctx)
	if len(repaired) > 0 { // also after an error: nobody finds them again
		first := repaired[0]
		_, _ = fmt.Fprintf(stdout, "put right: %d states that were not what the tables say, such as that of %s (%s; now %s)\n",
			len(repaired), first.ID, first.Was, first.Became)
	}
	if err != nil {
		return err
	}
	ways, err := source.Unseen(ctx)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, way := range ways {
		fmt.Fprintf(&b, "no trigger sees this: %s\n", way)
	}
	if len(ways) > 0 {
		b.WriteString("sessions are counted in their table when one is accepted, so nobody gets too many; " +
			"states are put right by each comparison\n")
	}
	b.WriteString("the database has all that replicas need\n")
	_, err = io.WriteString(stdout, b.String())
	return err
}
