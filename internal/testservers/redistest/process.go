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
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rollcall-redis/rollcall/internal/process"
)

const (
	// Below the ephemeral range (32768 and up on Linux, 49152 on macOS): there an outgoing
	// connection could take the port of a server that is down, and a client that keeps dialling a
	// dead loopback port sooner or later connects to itself.
	firstPort, ports = 20000, 10000

	portTries = 50
	readyIn   = 2 * time.Minute // loads a large append-only file on a busy machine
	pollEvery = 5 * time.Millisecond
	logName   = "redis.log"
	logTail   = 8 << 10 // bytes of the log shown by a failed test
	oldest    = 7       // major version
)

var (
	errPortTaken = errors.New("redistest: port is taken")
	errExited    = errors.New("redistest: redis-server ended")
)

// server keeps its port and folder through restarts.
type server struct {
	binary string
	dir    string
	args   []string
	port   int
	bus    int    // a Cluster's node traffic; 0: not a Cluster
	conf   string // a Sentinel's configuration file
	// holds are UDP ports with the same numbers, which Redis does not use: they reserve the numbers
	// among test binaries even while the server is down.
	holds []net.PacketConn

	mu   sync.Mutex       // guards what changes with a restart
	life *process.Process // the present process, or the last
}

// launch chooses the port; a node of a Cluster takes two. An empty binary means the usual server.
func launch(binary, dir string, node bool, args []string) (p *server, err error) {
	return (&server{binary: binary, dir: dir, args: args}).launch(node)
}

// launch's like must not be used any more.
func (like *server) launch(node bool) (p *server, err error) {
	binary := like.binary
	if binary == "" {
		if binary, err = findBinary(); err != nil {
			return nil, err
		}
	}
	for range portTries {
		p := &server{binary: binary, dir: like.dir, args: like.args, conf: like.conf}
		if p.port, err = p.reserve(); err == nil && node {
			p.bus, err = p.reserve()
		}
		if err == nil {
			if err = p.start(); err == nil {
				return p, nil
			}
		}
		if closeErr := p.close(); closeErr != nil || !errors.Is(err, errPortTaken) {
			return nil, errors.Join(err, closeErr)
		}
	}
	return nil, fmt.Errorf("redistest: no free port after %d tries: %w", portTries, err)
}

func (p *server) reserve() (port int, err error) {
	port = firstPort + rand.IntN(ports)
	hold, err := net.ListenPacket("udp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0, errPortTaken
	}
	p.holds = append(p.holds, hold)
	return port, nil
}

func (p *server) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

func (p *server) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	// The caller's arguments come last, because the later of two settings wins.
	own := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(p.port), "--dir", p.dir, "--save", "", "--appendonly", "no"}
	if p.conf != "" {
		own = []string{p.conf, "--sentinel", "--bind", "127.0.0.1", "--port", strconv.Itoa(p.port), "--dir", p.dir}
	}
	if p.bus != 0 {
		own = append(own, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(p.bus))
	}
	life, err := process.Start(exec.Command(p.binary, slices.Concat(own, p.args)...), process.Options{Log: filepath.Join(p.dir, logName)})
	if err != nil {
		return fmt.Errorf("redistest: start: %w", err)
	}
	p.life = life
	return p.awaitReady()
}

func (p *server) awaitReady() error {
	tick, late := time.NewTicker(pollEvery), time.NewTimer(readyIn)
	defer tick.Stop()
	defer late.Stop()
	var why error
	for {
		select {
		case <-p.life.Done():
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

// probe uses a plain socket because a go-redis pool backs off for a second after a refused dial.
// Ready with an error means a server that serves but must not be used.
func (p *server) probe() (ready bool, err error) {
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
	var answer []byte
	for part := make([]byte, 4096); !bytes.Contains(answer, []byte("+PONG\r\n")); {
		n, err := conn.Read(part) // a Sentinel does not support QUIT
		answer = append(answer, part[:n]...)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if err != nil {
			break
		}
	}
	// A server of somebody else on this port must not be touched.
	if !bytes.Contains(answer, fmt.Appendf(nil, "process_id:%d\r\n", p.life.PID())) {
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

func (p *server) present() *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.life
}

// kill ends even a stopped process.
func (p *server) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life != nil {
		p.life.Kill()
	}
}

func (p *server) close() (err error) {
	p.kill()
	for _, hold := range p.holds {
		err = errors.Join(err, hold.Close())
	}
	return err
}

func (p *server) log() string {
	text := p.life.Log()
	return text[max(0, len(text)-logTail):]
}

// From scripts/redis, "scripts/redis 8" and "scripts/redis valkey", below the module's root.
const (
	cached  = ".cache/redis/redis-server"
	cached8 = ".cache/redis8/redis-server"
	valkey  = ".cache/valkey/valkey-server"
)

var errNoBinary = errors.New("redistest: no redis-server found: run \"make redis\", or set REDIS_SERVER")

// findBinary tries nothing but REDIS_SERVER if that is set: a test could pass on a different server
// than the one requested.
func findBinary() (string, error) {
	if named := os.Getenv("REDIS_SERVER"); named != "" {
		path, err := exec.LookPath(named)
		if err != nil {
			return "", fmt.Errorf("redistest: REDIS_SERVER: %w", err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("redis-server"); err == nil {
		return path, nil
	}
	return findCached(cached)
}

func findNewest() string {
	named := os.Getenv("REDIS8_SERVER")
	if named == "" {
		named, _ = findCached(cached8)
	}
	return named
}

func findValkey() string {
	named := os.Getenv("VALKEY_SERVER")
	if named == "" {
		named, _ = exec.LookPath("valkey-server")
	}
	if named == "" {
		named, _ = findCached(valkey)
	}
	return named
}

// findCached looks next to every go.mod upwards: go test runs in the package's folder.
func findCached(name string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("redistest: working directory: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return path, nil
			}
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errNoBinary
		}
		dir = parent
	}
}
