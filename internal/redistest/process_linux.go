package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent makes the kernel kill the child when the test binary goes,
// also by a panic, a timeout or SIGKILL, when no clean-up runs.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// isStopped tells whether SIGSTOP has taken effect: it does so a moment after
// the signal was sent.
func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // nothing left that could run
	}
	// "pid (name) state ...", and the name may hold anything but a last ')'.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
	return bytes.HasPrefix(rest, []byte("T"))
}
