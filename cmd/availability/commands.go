package main

import "github.com/rollcall-redis/rollcall/cmd/internal/cli"

func commands() []*cli.Command { return []*cli.Command{simulate(), migrate()} }
