// Janitor removes what dead owners left in a registry of sockets, for fleets whose servers are not
// in Go, or write the registry plainly. "janitor -h" shows every setting.
package main

import (
	_ "embed"
	"slices"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/program"
)

func main() { cli.Main(command()) }

//go:embed page.html
var pageText string

type settings struct {
	program.Base
	program.Fleet
}

// table has ingest's names and defaults.
func (s *settings) table() []cli.Setting {
	return slices.Concat(s.Base.Table(), s.Fleet.Table("JANITOR", program.Defaults{
		Interval: "30s", TTL: "90s", Every: "60s", Heartbeat: ", as the fleet's owners have it",
		Prefixes: "Empty: `connections:registry` and so on. On a Redis Cluster it needs a {tag}. A fleet in " +
			"partitions is refused: each of its replicas has a janitor.",
		Passes: "How long dead entries of plain writers, which keep no index, outlive their owner at most. Others " +
			"go within two seconds.",
	}), []cli.Setting{s.Fleet.Metrics("JANITOR")})
}

func (s *settings) check(in *cli.Input) { s.Fleet.Check(in, "JANITOR", &s.Base) }

// prefixes are reserved: any other variable that begins so was mistyped.
var prefixes = []string{"JANITOR_", "HEARTBEAT_"}

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
	c.Run = program.Serving(c, &s.Base,
		program.Program{Name: "janitor", Base: &s.Base, Fleet: &s.Fleet, Page: pageText}.Serve)
	return c
}
