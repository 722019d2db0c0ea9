package main

import "github.com/rollcall-redis/rollcall/cmd/internal/service"

func commands() []*service.Command { return []*service.Command{simulate(), demoCommand(), migrate()} }
