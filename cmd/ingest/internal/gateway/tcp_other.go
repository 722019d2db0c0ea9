//go:build !linux

package gateway

import "time"

// setUserTimeout does nothing: the system decides how long data may stay unacknowledged.
func setUserTimeout(uintptr, time.Duration) error { return nil }
