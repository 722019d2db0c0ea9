package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/rollcall-redis/rollcall/cmd/availability/internal/demo"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
)

func demoCommand() *cli.Command {
	var cfg demo.Config
	return &cli.Command{
		Name: "availability demo",
		About: `availability demo shows in a minute what the program does while things break: three
replicas, a simulated workforce, a PostgreSQL and a Redis or Valkey of its own.
Nothing listens beyond this machine. "make availability" finds or fetches the
servers and runs it.`,
		Settings: []cli.Setting{
			printed("POSTGRES_BIN", "the folder that scripts/postgres prints", &cfg.Postgres),
			printed("REDIS_SERVER", "the program that scripts/redis prints", &cfg.RedisServer),
			{Name: "mitras", Default: "300", Value: cli.Number(&cfg.Mitras, leastDemo, mostDemo),
				Meaning: "number of simulated mitras"},
			cli.Seed(&cfg.Seed),
		},
		Run: func(ctx context.Context, stdout, _ io.Writer) error {
			cfg.Out = stdout
			return playDemo(ctx, cfg, os.Environ())
		},
		Notes: `Exit status: 0 if at the end Redis, PostgreSQL and the apps agree and nobody who
pinged was set offline, 1 if not or interrupted, 2 on wrong arguments.`,
	}
}

const (
	// With fewer, the apps that die at once are too large a share: nobody would be set offline for a
	// minute.
	leastDemo = 100
	mostDemo  = 5000 // each pings every two seconds
)

func printed(name, what string, p *string) cli.Setting {
	given := func(v string) error {
		if v == "" {
			return errors.New(what + "; make availability sets it")
		}
		return nil
	}
	return cli.Setting{Name: name, Required: true, Meaning: what, Value: cli.Text(p, given)}
}

func playDemo(ctx context.Context, cfg demo.Config, environ []string) error {
	command, err := cli.Itself(new(settings).table(), environ)
	if err != nil {
		return err
	}
	cfg.Command = command
	return demo.Run(ctx, cfg)
}
