//go:build !unix

package demo

import "syscall"

// ownGroup can do nothing here.
func ownGroup() *syscall.SysProcAttr { return nil }
