package program

import (
	"context"
	"time"

	"github.com/rollcall-redis/rollcall/cmd/internal/cli"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

// CheckHeartbeat refuses a TTL that a lost beat or two would use up.
func CheckHeartbeat(in *cli.Input, interval, ttl time.Duration) {
	if in.Understood("HEARTBEAT_TTL", "HEARTBEAT_INTERVAL") && ttl < 3*interval {
		in.Fault("HEARTBEAT_TTL: expected at least three times HEARTBEAT_INTERVAL (%v), got %v: "+
			"a lost beat or two would make a living replica look dead", interval, ttl)
	}
}

// ControlDeadline leaves time for another call, after one that hangs, within the shortest period
// that depends on it: a heartbeat's interval, a third of the lease, half of the witness' GAP.
func ControlDeadline(interval, ttl, leaseTTL time.Duration) time.Duration {
	gap := (ttl - interval) / 2
	return min(interval, leaseTTL/3, gap/2) * 9 / 10
}

const acceptedPoll = 20 * time.Millisecond

// Accepted begins a part when the first heartbeat has landed, or Redis does not answer. While Redis
// refuses this replica the part could only report that again.
func Accepted(
	status func() registry.Status, run func(context.Context) error,
) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			reg := status()
			if !reg.LastBeat.IsZero() || reg.Refused == "" && reg.Failing["heartbeat"] != "" {
				return run(ctx)
			}
			if !wait.For(ctx, acceptedPoll) {
				return nil
			}
		}
	}
}
