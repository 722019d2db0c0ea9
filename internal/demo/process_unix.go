//go:build unix && !linux

package demo

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from the child, which is ended by the demo. There is no death signal here: a demo that is
// killed leaves its children behind.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
