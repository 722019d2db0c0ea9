// Package process starts child processes that do not outlive their parent, and reads their output.
//
//	p, err := process.Start(exec.Command(binary), process.Options{Log: "replica.log"})
//	...
//	addr := p.Said("serving HTTP", "addr") // from its JSON log; "" until that line exists
//	...
//	p.Kill()
//
// On Linux the kernel kills a child when its parent ends, even by a panic, a timeout or SIGKILL,
// when no clean-up runs. On other systems a killed parent leaves its children running.
package process

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
)

// Options redirect input and output.
type Options struct {
	// Log is a file, created or truncated, for standard output and error.
	Log string
	// Talk connects [Process.In] and [Process.Out].
	Talk bool
	// OwnGroup keeps a terminal's Ctrl-C from the child.
	OwnGroup bool
}

// Process may be used at any time, even after its end.
type Process struct {
	// In and Out are the child's, with [Options.Talk]. Kill closes both.
	In  io.WriteCloser
	Out *bufio.Scanner

	cmd  *exec.Cmd
	log  string
	out  *os.File
	done chan struct{}
}

// Start starts a command. The caller must end it with [Process.Kill].
func Start(cmd *exec.Cmd, o Options) (*Process, error) {
	p := &Process{cmd: cmd, log: o.Log, done: make(chan struct{})}
	if o.Log != "" {
		log, err := os.OpenFile(o.Log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("process: log file: %w", err)
		}
		defer log.Close() // the child has its own descriptor
		cmd.Stdout, cmd.Stderr = log, log
	}
	if o.Talk {
		theirs, err := p.talk()
		if err != nil {
			return nil, fmt.Errorf("process: pipe: %w", err)
		}
		defer theirs.Close()
	}
	cmd.SysProcAttr = attributes(o.OwnGroup)
	started := make(chan error, 1)
	go func() {
		// The kernel sends the death signal when the forking thread ends, so keep it until the
		// child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // ExitCode has the status
		}
	}()
	if err := <-started; err != nil {
		p.hangUp()
		return nil, fmt.Errorf("process: %w", err)
	}
	return p, nil
}

// talk returns the child's end of its output. exec would close its own pipe when the child ends,
// losing unread output.
func (p *Process) talk() (theirs *os.File, err error) {
	if p.In, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, theirs, err = os.Pipe(); err != nil {
		return nil, err
	}
	p.Out, p.cmd.Stdout = bufio.NewScanner(p.out), theirs
	return theirs, nil
}

func (p *Process) hangUp() {
	if p.out != nil {
		_ = p.In.Close() // the child's end may have closed it
		_ = p.out.Close()
	}
}

// PID returns the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Runs reports whether the child has not ended: a stopped one runs.
func (p *Process) Runs() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal returns an error that wraps [os.ErrProcessDone] if the child has ended.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("process: %s: %w", sig, err)
	}
	return nil
}

// Kill ends even a stopped child, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may be gone already
	<-p.done
	p.hangUp()
}

// ExitCode waits for the end, and returns the exit status, -1 after a signal.
func (p *Process) ExitCode() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

// Log returns what is in [Options.Log] so far.
func (p *Process) Log() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Said is [Said] of the child's log.
func (p *Process) Said(message, key string) string { return Said(p.Log(), message, key) }

// Said returns a value of the first line with a message in a JSON log, or "".
func Said(log, message, key string) string {
	for line := range strings.Lines(log) {
		var record map[string]any
		if json.Unmarshal([]byte(line), &record) == nil && record["msg"] == message {
			return fmt.Sprint(record[key])
		}
	}
	return ""
}

// Buffer collects writes for others to read meanwhile. It is safe for concurrent use.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns everything so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
