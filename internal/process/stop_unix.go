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

const stopsIn = 10 * time.Second

var errNotStopped = errors.New("process: the child does not stop")

// Stop freezes the child (SIGSTOP) and returns when that holds: it does a moment after the signal
// was sent.
func (p *Process) Stop() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.Now().Add(stopsIn); p.Runs() && !p.Stopped(); <-tick.C {
		if time.Now().After(late) {
			return errNotStopped
		}
	}
	return nil
}

// Cont lets a stopped child go on (SIGCONT).
func (p *Process) Cont() error { return p.Signal(syscall.SIGCONT) }

// Stopped tells whether the child is frozen, by whatever signal.
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
