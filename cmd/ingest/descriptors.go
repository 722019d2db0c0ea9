package main

import (
	"fmt"

	"github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"
	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
)

const (
	// reserve is a replica's descriptors beside device sockets: Redis pools, HTTP, listeners.
	reserve = 256
	// beside is a simulation's descriptors beside its sockets.
	beside = 32
)

// affordable bounds the sockets of devices by the descriptor limit, which sockets without an IMEI
// share. Otherwise a flood of devices takes the descriptors needed to dial Redis, and a replica
// that loses Redis once never reconnects.
func affordable(want, limit int) int {
	most := max(2, limit-min(reserve, limit/2))
	return min(want, most-gateway.Unidentified(most))
}

func descriptorsFor(sockets int) error {
	if want, limit := sockets+beside, cli.OpenFiles(); want > limit {
		return fmt.Errorf("%d open files are needed and %d allowed: raise the limit (ulimit -Hn %d), "+
			"or take fewer --devices or no --half-open", want, limit, want)
	}
	return nil
}
