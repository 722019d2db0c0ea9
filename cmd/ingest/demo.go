package main

import (
	"cmp"
	"context"
	"io"
	"os"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/demo"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
)

// mostDemo bounds the devices: the demo reads the whole registry every few ms.
const mostDemo = 5000

func runDemo() *cli.Command {
	var cfg demo.Config
	return &cli.Command{
		Name: "ingest demo",
		About: `ingest demo shows in a minute what happens when replicas die, join and stop: three
replicas on a Redis of its own, a fleet of simulated trackers, and what becomes of the
registry. Nothing listens beyond this machine.`,
		Settings: []cli.Setting{
			{Name: "devices", Default: "300", Value: cli.Number(&cfg.Devices, 3, mostDemo),
				Meaning: "number of trackers"},
			cli.Seed(&cfg.Seed),
		},
		Check: func(in *cli.Input) {
			if err := descriptorsFor(2 * cfg.Devices); err != nil {
				in.Fault("%v", err)
			}
		},
		Run: func(ctx context.Context, stdout, _ io.Writer) error {
			cfg.Out = stdout
			return playDemo(ctx, cfg, os.Environ())
		},
		Notes: `Exit status: 0 if the registry converged exactly, 1 if not or interrupted, 2 on wrong
arguments.`,
	}
}

func playDemo(ctx context.Context, cfg demo.Config, environ []string) error {
	var target connect.Redis
	if err := target.Parse(connect.EmbeddedRedis); err != nil {
		return err
	}
	clients, err := connect.Open(ctx, &target, time.Second)
	if err != nil {
		return err
	}
	defer clients.Close()
	cfg.Redis, cfg.Control, cfg.RedisURL = clients.Data, clients.Control, "redis://"+clients.Embedded
	if cfg.Command, err = cli.Itself(new(settings).table(), environ); err != nil {
		return err
	}
	err = demo.Run(ctx, cfg)
	if ctx.Err() != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return err
}
