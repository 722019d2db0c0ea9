package main

import (
	"fmt"

	"github.com/rollcall-redis/rollcall/cmd/internal/service"
)

const (
	// reserve is how many descriptors a replica needs beside device sockets: for Redis' pools,
	// HTTP, listeners.
	reserve = 256
	// beside is how many a simulation needs beside its sockets.
	beside = 32
)

// affordable is how many device sockets the descriptor limit allows. Without it a flood of devices
// takes the descriptors that Redis is dialled with, and a replica that has lost Redis once never
// finds it again.
func affordable(want int) int {
	limit := service.OpenFiles()
	return min(want, max(1, limit-min(reserve, limit/2)))
}

// descriptorsFor says why a simulation cannot open so many sockets; nil: it can.
func descriptorsFor(sockets int) error {
	if want, limit := sockets+beside, service.OpenFiles(); want > limit {
		return fmt.Errorf("%d open files are needed and %d allowed: raise the limit (ulimit -Hn %d), "+
			"or take fewer --devices or no --half-open", want, limit, want)
	}
	return nil
}
