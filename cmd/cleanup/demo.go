package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/cleanup/internal/demo"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/cmd/internal/connect"
)

func demoCommand() *cli.Command {
	var ferret string
	return &cli.Command{
		Name: "cleanup demo",
		About: `cleanup demo shows in a minute what the worker does beside a game backend that is
made up, and leaks. Redis is inside the demo, MongoDB is FerretDB. Nothing listens
beyond this machine. "make cleanup-demo" builds FerretDB and runs it.`,
		Settings: []cli.Setting{
			{Name: "FERRET_SERVER", Value: cli.Text(&ferret),
				Meaning: "the program that scripts/ferret prints"},
		},
		Check: func(in *cli.Input) {
			if ferret == "" {
				in.Fault("FERRET_SERVER: expected the program that scripts/ferret prints; make cleanup-demo sets it")
			}
		},
		Run: func(ctx context.Context, stdout, _ io.Writer) error {
			return playDemo(ctx, stdout, ferret, os.Environ())
		},
		Notes: `Exit status: 0 if exactly the orphans went, 1 if not or interrupted, 2 on wrong
arguments.`,
	}
}

func playDemo(ctx context.Context, out io.Writer, ferret string, environ []string) error {
	var target connect.Redis
	if err := target.Parse(connect.EmbeddedRedis); err != nil {
		return err
	}
	clients, err := connect.Open(ctx, &target, time.Second)
	if err != nil {
		return err
	}
	defer clients.Close()
	command, err := cli.Itself(new(settings).table(), environ)
	if err != nil {
		return err
	}
	return demo.Run(ctx, demo.Config{
		Command: command, Ferret: ferret, Redis: clients.Data, RedisURL: "redis://" + clients.Embedded, Out: out,
	})
}
