package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/rollcall-redis/rollcall/internal/demo"
	"github.com/rollcall-redis/rollcall/internal/embedded"
	"github.com/rollcall-redis/rollcall/internal/settings"
	"github.com/rollcall-redis/rollcall/lease"
)

const demoUsage = `ingest demo shows in a minute what happens when replicas die, join and stop: three
replicas, a fleet of simulated trackers, and what becomes of the registry.

Usage: ingest demo [--devices number] [--seed number]

It runs on a Redis inside its own process, or on the one that REDIS_URL names, which
must be free of a fleet and is left as it was. Nothing listens beyond this machine.
Exit status: 0 if the registry converged exactly, 1 if not or interrupted, 2 on wrong
arguments.
`

// mostDemo is how many devices a demo has at most: it reads the whole registry at every look.
const mostDemo = 5000

// runDemo is "ingest demo". It returns the exit status.
func runDemo(ctx context.Context, args, environ []string, stdout, stderr io.Writer) int {
	cfg, err := parseDemo(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(stdout, demoUsage)
		return printed(err, stderr)
	}
	var target settings.Redis
	if err == nil {
		target, err = settings.ParseRedis(cmp.Or(valueOf(environ, "REDIS_URL"), settings.EmbeddedRedis))
		if err != nil {
			err = fmt.Errorf("REDIS_URL: expected %w", err)
		} else if target.Sentinel != nil {
			err = errors.New("REDIS_URL: expected one server; the demo does not look behind sentinels")
		}
	}
	if err == nil {
		err = descriptorsFor(2 * cfg.Devices)
	}
	if err != nil {
		fmt.Fprintln(stderr, "ingest demo:", err)
		return exitUsage
	}
	if err := playDemo(ctx, cfg, target, environ); err != nil {
		fmt.Fprintln(stderr, "ingest demo:", err)
		return exitFailed
	}
	return exitOK
}

// parseDemo reads the arguments. Its error is flag.ErrHelp, or says what is wrong.
func parseDemo(args []string, stdout io.Writer) (cfg demo.Config, err error) {
	fs := flag.NewFlagSet("ingest demo", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&cfg.Devices, "devices", 300, "")
	fs.Uint64Var(&cfg.Seed, "seed", rand.Uint64(), "")
	cfg.Out = stdout
	if err := fs.Parse(args); err != nil {
		return cfg, err
	}
	switch {
	case fs.NArg() > 0:
		return cfg, errors.New("expected flags only (ingest demo -h)")
	case cfg.Devices < 3 || cfg.Devices > mostDemo:
		return cfg, fmt.Errorf("--devices: expected 3 to %d", mostDemo)
	}
	return cfg, nil
}

// playDemo runs the demo on a given Redis, or on one inside this process.
func playDemo(ctx context.Context, cfg demo.Config, target settings.Redis, environ []string) error {
	cfg.RedisURL, cfg.RedisName = valueOf(environ, "REDIS_URL"), target.String()
	if target.Embedded() {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		cfg.RedisURL, cfg.RedisName = "redis://"+server.Addr(), "embedded in the demo, at "+server.Addr()
		if target, err = settings.ParseRedis(cfg.RedisURL); err != nil {
			return fmt.Errorf("ingest: %w", err)
		}
	}
	cfg.Redis, cfg.Control = redis.NewClient(target.Single), redis.NewClient(lease.Options(target.Single))
	defer cfg.Redis.Close()
	defer cfg.Control.Close()
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("ingest: %w", err)
	}
	// What is set for a replica in this environment is not meant for the demo's.
	inherited := slices.DeleteFunc(slices.Clone(environ), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(settings.Names(), name)
	})
	cfg.Command = func() *exec.Cmd {
		cmd := exec.Command(binary)
		cmd.Env = slices.Clone(inherited)
		return cmd
	}
	err = demo.Run(ctx, cfg)
	if ctx.Err() != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return err
}

// valueOf is a variable's value in an environment; the last one counts.
func valueOf(environ []string, name string) (value string) {
	for _, pair := range environ {
		if n, v, ok := strings.Cut(pair, "="); ok && n == name {
			value = v
		}
	}
	return value
}
