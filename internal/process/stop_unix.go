//go:build unix

package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// Stop freezes the child (SIGSTOP) and returns when it is frozen, a moment after the signal.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for late := time.Now().Add(10 * time.Second); p.Runs() && !p.Stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			return errors.New("process: the child does not stop")
		}
	}
	return nil
}

// Cont lets a stopped child go on (SIGCONT).
func (p *Process) Cont() error { return p.Signal(syscall.SIGCONT) }

// Stopped tells whether the child is frozen, by any signal.
func (p *Process) Stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil { // it is gone, or this is no Linux
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(p.PID())).Output()
		return err == nil && bytes.HasPrefix(state, []byte("T"))
	}
	// "pid (name) state ...", and the name may hold anything but a last ')'.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
	return bytes.HasPrefix(rest, []byte("T"))
}
