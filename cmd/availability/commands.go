package main

import "github.com/rollcall-redis/rollcall/cmd/internal/service"

// commands are what the first argument may name.
func commands() []*service.Command { return []*service.Command{simulate(), demoCommand(), migrate()} }
