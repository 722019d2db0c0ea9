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

// Stop freezes the child (SIGSTOP) and waits until it is frozen.
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

// Cont ends Stop.
func (p *Process) Cont() error { return p.Signal(syscall.SIGCONT) }

// Stopped reports whether the child is frozen, by any signal.
func (p *Process) Stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil { // gone, or not Linux
		state, err := exec.Command("ps", "-o", "state=", "-p", strconv.Itoa(p.PID())).Output()
		return err == nil && bytes.HasPrefix(state, []byte("T"))
	}
	// "pid (name) state ...", where the name may contain anything, but the last ')' ends it.
	_, rest, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
	return bytes.HasPrefix(rest, []byte("T"))
}
