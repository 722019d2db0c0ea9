package main

import "github.com/rollcall-redis/rollcall/cmd/ingest/internal/gateway"

// reserve is a replica's descriptors beside device sockets: Redis pools, HTTP, listeners.
const reserve = 256

// affordable bounds the sockets of devices by the descriptor limit, which sockets without an IMEI
// share. Otherwise a flood of devices takes the descriptors needed to dial Redis, and a replica
// that loses Redis once never reconnects.
func affordable(want, limit int) int {
	most := max(2, limit-min(reserve, limit/2))
	return min(want, most-gateway.Unidentified(most))
}
