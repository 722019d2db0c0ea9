//go:build !linux

package gateway

import "time"

func setUserTimeout(uintptr, time.Duration) error { return nil }
