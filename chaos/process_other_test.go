//go:build !linux

package chaos

import "syscall"

// dieWithParent is for Linux only: elsewhere a test binary that is killed leaves its replicas running.
func dieWithParent() *syscall.SysProcAttr { return nil }
