// Package wait has the one way in which the packages here let time pass.
package wait

import (
	"context"
	"time"
)

// For waits for d and reports true, or false as soon as ctx ends.
func For(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
