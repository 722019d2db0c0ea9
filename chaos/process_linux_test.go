package chaos

import "syscall"

// dieWithParent makes the kernel kill a replica when the test binary goes, also by a panic or a timeout, when no
// clean-up runs.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
