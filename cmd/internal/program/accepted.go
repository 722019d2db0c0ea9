package program

import (
	"context"
	"time"

	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/registry"
)

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
