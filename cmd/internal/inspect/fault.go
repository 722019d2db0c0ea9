package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

const faultsKey = "telemetry:teltonika:faults"

// longestFault exceeds what gateways store.
const longestFault = 4096

// Fault is what a device last sent wrong.
type Fault struct {
	At    time.Time `json:"at"`
	Kind  string    `json:"kind"`
	Error string    `json:"error"`
	Bytes string    `json:"bytes"` // hex of the frame's beginning
	Peer  string    `json:"peer"`
}

// unknown ends a sentence if the key is on a server of a Redis Cluster that does not answer.
func (r *Reader) fault(ctx context.Context, imei string) (f *Fault, unknown string, err error) {
	within, cancel := ctx, context.CancelFunc(func() {})
	if r.single {
		within, cancel = context.WithTimeout(ctx, reachTimeout)
	}
	defer cancel()
	text, err := r.client.HGet(within, faultsKey, imei).Bytes()
	var refused redis.Error // redis.Nil is one too
	switch {
	case errors.As(err, &refused):
		return nil, "", nil
	case err != nil && r.single && ctx.Err() == nil:
		return nil, "; what it last sent wrong is unknown: " + faultsKey + " cannot be read (" + cause(err) + ")",
			nil
	case err != nil:
		return nil, "", fmt.Errorf("inspect: read the fault: %w", err)
	}
	var stored struct {
		Fault
		At int64 `json:"at"`
	}
	if len(text) > longestFault || json.Unmarshal(text, &stored) != nil {
		return nil, "", nil
	}
	stored.Fault.At = time.UnixMilli(stored.At)
	return &stored.Fault, "", nil
}
