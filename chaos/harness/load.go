package harness

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/chaos/judge"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// LoadProcess is an owner of tens of thousands of entries that can be killed, without sockets. It
// is this test's own binary, and repeats each order on its standard input as the answer:
//
//	claim <from> <to>    devices connect; answered when all registrations landed, or after a while
//	stale <from> <to>    they have gone elsewhere unnoticed: no frame arrives any more
//	release <from> <to>  it has noticed
type LoadProcess struct {
	*process.Process
	ID    string
	Proxy *Proxy
	w     *Environment
	// device -> index in w.devices.sockets; for the scenario's goroutine
	held map[int]int
}

// AsLoadProcess makes a test binary a load process with that id.
const AsLoadProcess = "ROLLCALL_LOAD_PROCESS"

func loadIMEI(i int) string { return fmt.Sprintf("88%013d", i) }

// StartLoad gives it a proxy of its own.
func (w *Environment) StartLoad(id string) *LoadProcess {
	h := &LoadProcess{ID: id, Proxy: w.Proxy(), w: w, held: make(map[int]int)}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), AsLoadProcess+"="+id, "REDIS_ADDR="+h.Proxy.Addr())
	cmd.Stderr = os.Stderr
	var err error
	h.Process, err = process.Start(cmd, process.Options{Talk: true})
	require.NoError(w, err)
	w.Cleanup(h.Process.Kill)
	return h
}

// Order waits for the answer.
func (h *LoadProcess) Order(what string, from, to int) {
	h.w.Helper()
	line := fmt.Sprintf("%s %d %d", what, from, to)
	_, err := fmt.Fprintln(h.In, line)
	require.NoError(h.w.T, err)
	require.True(h.w.T, h.Out.Scan(), "load process %s is gone", h.ID)
	require.Equal(h.w.T, line, h.Out.Text())
}

// Claim takes devices from their former process.
func (h *LoadProcess) Claim(from, to int, before *LoadProcess) {
	d := h.w.Fleet
	now := time.Now()
	if before != nil {
		before.leaves(from, to, now)
		before.Order("stale", from, to)
	}
	d.mu.Lock()
	for i := from; i < to; i++ {
		h.held[i] = len(d.sockets)
		d.sockets = append(d.sockets, judge.Socket{IMEI: loadIMEI(i), Instance: h.ID, Asked: now})
	}
	d.mu.Unlock()
	// No Ack: the answer includes registrations that were given up.
	h.Order("claim", from, to)
	d.mu.Lock()
	defer d.mu.Unlock()
	now = time.Now()
	for i := from; i < to; i++ {
		d.sockets[h.held[i]].Live = now
		h.w.claims[loadIMEI(i)] = h.ID
	}
}

func (h *LoadProcess) leaves(from, to int, at time.Time) {
	d := h.w.Fleet
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, n := range h.held {
		if i < from || i >= to {
			continue
		}
		d.sockets[n].Ended = at
		delete(h.held, i)
		if h.w.claims[loadIMEI(i)] == h.ID {
			delete(h.w.claims, loadIMEI(i))
		}
	}
}

// Kill leaves its devices nowhere.
func (h *LoadProcess) Kill() {
	h.leaves(0, math.MaxInt, time.Now())
	h.w.noteDeath(judge.Death{Instance: h.ID, At: time.Now(), How: judge.Killed})
	h.Process.Kill()
}

// Stop freezes it until the returned function is called.
func (h *LoadProcess) Stop() (cont func()) {
	back := h.w.Outage(h.ID)
	require.NoError(h.w.T, h.Process.Stop())
	return sync.OnceFunc(func() {
		require.NoError(h.w.T, h.Process.Cont())
		back()
	})
}

// RunLoad ends when standard input does.
func RunLoad(id string) error {
	options := &slog.HandlerOptions{Level: slog.LevelError}
	log := slog.New(slog.NewTextHandler(os.Stderr, options)).With("load", id)
	data, control := Clients(os.Getenv("REDIS_ADDR"), 0)
	r, err := registry.New(registry.Config{
		Client: data, Control: control, Instance: id,
		HeartbeatInterval: Interval, HeartbeatTTL: TTL, Logger: log,
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()

	var mu sync.Mutex
	claims, live := map[int]*registry.Claim{}, map[int]*registry.Claim{}
	go func() { // devices that are really connected send a frame a second
		for range time.Tick(time.Second) {
			mu.Lock()
			for _, c := range live {
				c.Touch()
			}
			mu.Unlock()
		}
	}()
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var what string
		var from, to int
		if _, err := fmt.Sscanf(orders.Text(), "%s %d %d", &what, &from, &to); err != nil {
			return fmt.Errorf("order %q: %w", orders.Text(), err)
		}
		select {
		case err := <-ended:
			return err
		default:
		}
		mu.Lock()
		for i := from; i < to; i++ {
			switch what {
			case "claim":
				claims[i] = r.Register(loadIMEI(i), Nobody)
				live[i] = claims[i]
			case "stale":
				delete(live, i)
			case "release":
				claims[i].Release()
				delete(claims, i)
				delete(live, i)
			}
		}
		mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 2*TTL)
		for i := from; i < to && what == "claim"; i++ {
			_ = claims[i].Wait(ctx) // an unanswered one is served anyway, and healed
		}
		cancel()
		fmt.Println(orders.Text())
	}
	return orders.Err()
}

// Clients do not retry: each answer belongs to one question. within is every deadline; 0: the
// usual.
func Clients(addr string, within time.Duration) (data, control *redis.Client) {
	o := &redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
		DialTimeout: within, ReadTimeout: within, WriteTimeout: within, PoolTimeout: within,
	}
	return redis.NewClient(o), redis.NewClient(lease.Options(o))
}

// Nobody is a socket that nobody minds.
var Nobody = registry.Socket{Close: func() error { return nil }}
