//go:build owners

// Package owners holds what an owner in any language has to pass: make test-node. An owner is a
// process that takes commands on its standard input and reports events on its standard output, a
// line of JSON each; clients/node/test/process.mjs is the smallest example. The cases wait for what
// an owner writes, says or publishes, and count its beats instead of seconds, so that they hold on
// a busy machine; broken.mjs shows that each notices what it is about.
package owners

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	interval = time.Second // lease.Options fits no shorter ones
	ttl      = 6 * time.Second
	// What an owner ends with when a newer process has its id.
	exitReplaced = 3
)

// patience is how long what an owner must do may take. PATIENCE shortens it for those that are
// known to be broken.
var patience = time.Minute

func TestMain(m *testing.M) {
	if d, err := time.ParseDuration(os.Getenv("PATIENCE")); err == nil {
		patience = d
	}
	if os.Getenv("INSTANCE") != "" {
		if err := beOwner(); err != nil {
			if errors.Is(err, registry.ErrReplaced) {
				os.Exit(exitReplaced)
			}
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	redistest.Main(m)
}

// languages are the owners, and how each is started. With OWNER it is that command alone, in
// FOLDER.
func languages() map[string]func() *exec.Cmd {
	if command := os.Getenv("OWNER"); command != "" {
		return map[string]func() *exec.Cmd{"owner": func() *exec.Cmd {
			cmd := exec.Command("sh", "-c", "exec "+command)
			cmd.Dir = os.Getenv("FOLDER")
			return cmd
		}}
	}
	return map[string]func() *exec.Cmd{
		"go":   func() *exec.Cmd { return exec.Command(os.Args[0]) },
		"node": func() *exec.Cmd { return exec.Command("node", filepath.Join(os.Getenv("NODE"), "test", "process.mjs")) },
	}
}

// An event is a line of an owner's output, and a command one of its input.
type event struct{ Event, Key, Owner string }

// Ping, of a registration, says that the socket can be pinged: "answers", or "fails".
type command struct {
	Do   string `json:"do"`
	Key  string `json:"key,omitempty"`
	Ping string `json:"ping,omitempty"`
}

// beOwner makes this process an owner in Go.
func beOwner() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	ms := func(name string) time.Duration {
		n, _ := strconv.Atoi(os.Getenv(name))
		return time.Duration(n) * time.Millisecond
	}
	var mu sync.Mutex
	say := func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = json.NewEncoder(os.Stdout).Encode(map[string]string{"event": e.Event, "key": e.Key, "owner": e.Owner})
	}
	db, _ := strconv.Atoi(os.Getenv("REDIS_DB"))
	opt := &redis.Options{Addr: "127.0.0.1:" + os.Getenv("REDIS_PORT"), DB: db, MaxRetries: -1,
		ContextTimeoutEnabled: true}
	rdb, ctl := redis.NewClient(opt), redis.NewClient(lease.Options(opt))
	defer rdb.Close()
	defer ctl.Close()
	reg, err := registry.New(registry.Config{
		Client: rdb, Control: ctl, Instance: os.Getenv("INSTANCE"), HeartbeatInterval: ms("INTERVAL"), HeartbeatTTL: ms("TTL"),
		OnReconciled: func() { say(event{Event: "reconciled"}) },
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- reg.Run(ctx) }()
	<-reg.Started()
	say(event{Event: "started"})
	go func() {
		claims := map[string]*registry.Claim{}
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			var c command
			if json.Unmarshal(lines.Bytes(), &c) != nil {
				continue
			}
			claim := claims[c.Key]
			switch c.Do {
			case "register":
				registered := make(chan *registry.Claim, 1)
				socket := registry.Socket{Close: func() error {
					moved, _ := errors.AsType[registry.MovedError]((<-registered).Err())
					say(event{"closed", c.Key, moved.To})
					return nil
				}}
				if c.Ping != "" {
					socket.Ping = func(context.Context) error {
						if c.Ping == "answers" {
							return nil
						}
						return errors.New("no pong")
					}
				}
				claim = reg.Register(c.Key, socket)
				claims[c.Key] = claim
				registered <- claim
				go func() {
					if claim.Wait(ctx) == nil {
						say(event{Event: "landed", Key: c.Key})
					}
				}()
			case "release":
				claim.Release()
			case "touch":
				claim.Touch()
			case "stop":
				for _, claim := range claims {
					claim.Release()
				}
				stop()
			}
		}
	}()
	return <-ended
}

// An owner is a process under test.
type owner struct {
	*process.Process
	t      *testing.T
	id     string
	mu     sync.Mutex
	events []event
}

// start starts an owner and waits until it has reached Redis.
func start(t *testing.T, cmd *exec.Cmd, addr string, db int, id string) *owner {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	cmd.Env = append(os.Environ(), "REDIS_PORT="+port, fmt.Sprint("REDIS_DB=", db), "INSTANCE="+id,
		fmt.Sprintf("INTERVAL=%d", interval.Milliseconds()), fmt.Sprintf("TTL=%d", ttl.Milliseconds()))
	cmd.Stderr = os.Stderr
	p, err := process.Start(cmd, process.Options{Talk: true})
	require.NoError(t, err)
	o := &owner{Process: p, t: t, id: id}
	var read sync.WaitGroup
	read.Go(func() {
		for p.Out.Scan() {
			var e event
			if json.Unmarshal(p.Out.Bytes(), &e) == nil {
				o.mu.Lock()
				o.events = append(o.events, e)
				o.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		o.Process.Kill()
		read.Wait()
	})
	o.awaits(event{Event: "started"})
	return o
}

// do gives the owner a command.
func (o *owner) do(what, key string) { o.t.Helper(); o.does(command{Do: what, Key: key}) }

func (o *owner) does(c command) {
	o.t.Helper()
	line, err := json.Marshal(c)
	require.NoError(o.t, err)
	_, err = o.In.Write(append(line, '\n'))
	require.NoError(o.t, err)
}

// count returns how often an event was reported.
func (o *owner) count(e event) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, have := range o.events {
		if have == e {
			n++
		}
	}
	return n
}

func (o *owner) has(e event) bool { return o.count(e) > 0 }

// closed reports whether the owner closed a socket of a key.
func (o *owner) closed(key string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.ContainsFunc(o.events, func(e event) bool { return e.Event == "closed" && e.Key == key })
}

func (o *owner) awaits(e event) {
	o.t.Helper()
	eventually(o.t, fmt.Sprintf("%s: %+v", o.id, e), func() bool { return o.has(e) })
}

// eventually waits until a condition holds. Unlike require.Eventually it asks in the test's own
// goroutine, so that the condition may fail the test.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	every := time.NewTicker(5 * time.Millisecond)
	defer every.Stop()
	for late := time.After(patience); !cond(); {
		select {
		case <-every.C:
		case <-late:
			require.Fail(t, "it does not come about", what)
		}
	}
}

// exits waits for the end of the owner.
func (o *owner) exits(code int) {
	o.t.Helper()
	eventually(o.t, "it exits", func() bool { return !o.Runs() })
	require.Equal(o.t, code, o.ExitCode())
}

// registers registers a key and waits until its entry landed.
func (o *owner) registers(key string) {
	o.t.Helper()
	o.do("register", key)
	o.awaits(event{Event: "landed", Key: key})
}
