//go:build !unix

package process

import "syscall"

func attributes(bool) *syscall.SysProcAttr { return nil }
