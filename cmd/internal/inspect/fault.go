package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// faultsKey is the hash in which gateways store the last fault of each device.
const faultsKey = "telemetry:teltonika:faults"

// longestFault is how many bytes of a fault are read; what gateways store is shorter.
const longestFault = 4096

// Fault is what was last wrong with what a device sent.
type Fault struct {
	At    time.Time `json:"at"`
	Kind  string    `json:"kind"`
	Error string    `json:"error"`
	Bytes string    `json:"bytes"` // hex, of the frame's beginning
	Peer  string    `json:"peer"`
}

// fault reads the last fault of a device; nil: there is none, or this user may not see it.
func (r *Reader) fault(ctx context.Context, imei string) (*Fault, error) {
	text, err := r.client.HGet(ctx, faultsKey, imei).Bytes()
	var refused redis.Error // redis.Nil is one too
	if errors.As(err, &refused) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect: read the fault: %w", err)
	}
	var f struct {
		Fault
		At int64 `json:"at"`
	}
	if len(text) > longestFault || json.Unmarshal(text, &f) != nil {
		return nil, nil
	}
	f.Fault.At = time.UnixMilli(f.At)
	return &f.Fault, nil
}
