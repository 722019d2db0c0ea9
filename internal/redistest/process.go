package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// Ports are drawn below the ephemeral range (32768 and up on Linux, 49152
	// on macOS). From within it an outgoing connection could take the port of
	// a server that is down, and a client that keeps dialling a dead loopback
	// port of that range sooner or later connects to itself.
	firstPort, ports = 20000, 10000

	portTries = 50
	readyIn   = 2 * time.Minute // the loading of a large append-only file on a busy machine included
	pollEvery = 5 * time.Millisecond
	logName   = "redis.log"
	logTail   = 8 << 10 // bytes of the log that a failed test shows
	oldest    = 7       // major version
)

var (
	errPortTaken = errors.New("redistest: port is taken")
	errExited    = errors.New("redistest: redis-server ended")
)

// process is one redis-server with a port and a folder that outlive its lives.
type process struct {
	binary string
	dir    string
	args   []string
	port   int
	// hold is the UDP port of the same number. Redis does not use it, so it
	// reserves the number among test binaries also while the server is down.
	hold net.PacketConn

	mu   sync.Mutex // guards what changes from life to life
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd was waited for
}

// launch starts a server on a port of its own choice. It keeps its files in dir.
func launch(dir string, args []string) (*process, error) {
	binary, err := findBinary()
	if err != nil {
		return nil, err
	}
	return launchNamed(binary, dir, args)
}

// launchNamed is launch for a program that was found already.
func launchNamed(binary, dir string, args []string) (*process, error) {
	var err error
	for range portTries {
		p := &process{binary: binary, dir: dir, args: args, port: firstPort + rand.IntN(ports)}
		if p.hold, err = net.ListenPacket("udp", p.addr()); err != nil {
			continue
		}
		if err = p.start(); err == nil {
			return p, nil
		}
		if closeErr := p.close(); closeErr != nil || !errors.Is(err, errPortTaken) {
			return nil, errors.Join(err, closeErr)
		}
	}
	return nil, fmt.Errorf("redistest: no free port after %d tries: %w", portTries, err)
}

func (p *process) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// start begins a life and returns when the server answers.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	logFile, err := os.OpenFile(filepath.Join(p.dir, logName), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("redistest: log file: %w", err)
	}
	defer logFile.Close() // the child has its own descriptor

	// The caller's arguments come last: the later of two settings wins.
	own := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(p.port), "--dir", p.dir, "--save", "", "--appendonly", "no"}
	cmd := exec.Command(p.binary, slices.Concat(own, p.args)...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = dieWithParent()

	started, done := make(chan error, 1), make(chan struct{})
	go func() {
		// The kernel's death signal goes out when the *thread* that forked
		// ends, not the process: this one is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // a status says nothing that the log does not say better
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("redistest: start: %w", err)
	}
	p.cmd, p.done = cmd, done
	return p.awaitReady()
}

// awaitReady polls until this very process answers PING.
func (p *process) awaitReady() error {
	tick, late := time.NewTicker(pollEvery), time.NewTimer(readyIn)
	defer tick.Stop()
	defer late.Stop()
	var why error
	for {
		select {
		case <-p.done:
			text := p.log()
			if strings.Contains(text, "Address already in use") {
				return errPortTaken
			}
			return fmt.Errorf("%w: %s\n%s", errExited, p.binary, text)
		case <-late.C:
			return fmt.Errorf("redistest: %s not ready within %s: %w\n%s", p.binary, readyIn, why, p.log())
		case <-tick.C:
			var ready bool
			if ready, why = p.probe(); ready {
				return why
			}
		}
	}
}

// probe asks the server who it is and whether it serves. Plain text over a
// socket: a go-redis pool backs off for a second after a refused dial.
// Ready with an error is a server that serves but must not be used.
func (p *process) probe() (ready bool, err error) {
	conn, err := net.DialTimeout("tcp", p.addr(), time.Second)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false, err
	}
	if _, err := io.WriteString(conn, "INFO server\r\nPING\r\nQUIT\r\n"); err != nil {
		return false, err
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return false, err
	}
	// Somebody else's server on this port is the one that must not be touched.
	if !bytes.Contains(answer, fmt.Appendf(nil, "process_id:%d\r\n", p.cmd.Process.Pid)) {
		return false, errors.New("another process answers (a wrapper named by REDIS_SERVER must exec the server)")
	}
	if !bytes.Contains(answer, []byte("+PONG\r\n")) {
		return false, fmt.Errorf("no PONG in %q", answer[max(0, len(answer)-100):])
	}
	_, version, _ := strings.Cut(string(answer), "redis_version:")
	version, _, _ = strings.Cut(version, "\r\n")
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldest {
		return true, fmt.Errorf("redistest: %s is version %q, need %d.0 or newer: run \"make redis\" and set REDIS_SERVER to what it prints", p.binary, version, oldest)
	}
	return true, nil
}

// signal sends sig to the living process.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.cmd.Process.Signal(sig); err != nil {
		return fmt.Errorf("redistest: %s: %w", sig, err)
	}
	return nil
}

func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// kill ends the present life, a stopped one too, and returns when it is over.
// Nothing to end is no error.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("redistest: kill: %w", err)
	}
	<-p.done
	return nil
}

// close ends the process for good and gives its port back.
func (p *process) close() error {
	return errors.Join(p.kill(), p.hold.Close())
}

// log returns the end of the present life's log.
func (p *process) log() string {
	text, err := os.ReadFile(filepath.Join(p.dir, logName))
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-logTail):])
}
