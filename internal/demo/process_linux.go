package demo

import "syscall"

// ownGroup keeps a terminal's Ctrl-C from the child, which is ended by the demo, and makes the kernel end it when the demo's
// process goes, also by SIGKILL.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
