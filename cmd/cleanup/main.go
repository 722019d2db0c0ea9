// Cleanup deletes orphaned keys of any application from Redis, by rules. Without a command it
// serves, on the Redis at REDIS_URL; "cleanup -h" lists every setting. "cleanup check" and "cleanup
// plan" report what the rules would do, and write nothing.
package main

import (
	"context"
	"log/slog"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
)

func main() { cli.Main(cleanup()) }

func cleanup() *cli.Command {
	s := new(settings)
	c := &cli.Command{
		Name: "cleanup",
		About: `cleanup deletes keys that point at nothing from an application's Redis, by rules.
It runs beside the application, in any number of replicas: one leads, and works
through every rule each CLEANUP_INTERVAL. Without a command it serves, and needs
REDIS_URL; with the built-in rules MONGODB_URI too. A rule deletes only if it says
"delete: true". What cannot be told is kept.

  cleanup check      looks whether the rules fit the keys that are there
  cleanup plan       shows what would go, and why; writes nothing
  cleanup why KEY    shows what each rule finds of one key
  cleanup rules      lists the packs of rules; cleanup rules NAME prints one`,
		Settings: s.table(),
		Prefixes: prefixes,
		Check:    s.check,
		Notes: `SIGTERM or SIGINT stops it gracefully; a second one at once. Exit status: 0
after a graceful stop, 1 on a failure at run time, 2 on wrong usage, settings or
rules.`,
		Commands: []*cli.Command{check(), plan(), why(), listRules()},
	}
	c.Run = program.Serving(c, &s.Base, func(ctx context.Context, log *slog.Logger) error {
		return serve(ctx, s, log)
	})
	return c
}
