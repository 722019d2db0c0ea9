package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/demo"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
)

// mostDemo bounds the devices: the demo reads the whole registry every few ms.
const mostDemo = 5000

const demoWantsOne = "REDIS_URL: expected one server; the demo uses neither sentinels nor a Cluster"

func runDemo() *cli.Command {
	var (
		cfg    demo.Config
		target connect.Redis
	)
	return &cli.Command{
		Name: "ingest demo",
		About: `ingest demo shows in a minute what happens when replicas die, join and stop: three
replicas, a fleet of simulated trackers, and what becomes of the registry.
Nothing listens beyond this machine.`,
		Settings: []cli.Setting{
			{Name: "REDIS_URL", Default: connect.EmbeddedRedis, Secret: true,
				Meaning: "a Redis that must be free of a fleet and is left as it was; embedded: one " +
					"inside the demo",
				Value: func(v string) error {
					cfg.RedisURL = v
					return target.Parse(v)
				}},
			{Name: "devices", Default: "300", Value: cli.Number(&cfg.Devices, 3, mostDemo),
				Meaning: "number of trackers"},
			cli.Seed(&cfg.Seed),
		},
		Check: func(in *cli.Input) {
			if target.Sentinel != nil || target.Cluster != nil {
				in.Fault("%s", demoWantsOne)
			}
			if err := descriptorsFor(2 * cfg.Devices); err != nil {
				in.Fault("%v", err)
			}
		},
		Run: func(ctx context.Context, stdout, _ io.Writer) error {
			cfg.Out = stdout
			return playDemo(ctx, cfg, target, os.Environ())
		},
		Notes: `Exit status: 0 if the registry converged exactly, 1 if not or interrupted, 2 on wrong
arguments.`,
	}
}

func playDemo(ctx context.Context, cfg demo.Config, target connect.Redis, environ []string) error {
	clients, err := connect.Open(ctx, &target, time.Second)
	if err != nil {
		return err
	}
	defer clients.Close()
	if target.Cluster != nil {
		return errors.New("ingest: " + demoWantsOne)
	}
	cfg.Redis, cfg.Control, cfg.RedisName = clients.Data, clients.Control, clients.Server
	if clients.Embedded != "" {
		cfg.RedisURL = "redis://" + clients.Embedded
	}
	command, err := cli.Itself(new(settings).table(), environ)
	if err != nil {
		return err
	}
	cfg.Command = command
	err = demo.Run(ctx, cfg)
	if ctx.Err() != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return err
}
