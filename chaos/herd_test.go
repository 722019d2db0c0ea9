package chaos

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

// A herd is a process of the registry package without sockets, for volume: an owner of tens of thousands of entries that can
// be killed. It is this test's own binary, told by its environment to be one, and takes orders on its standard input, a line each:
//
//	claim <from> <to>    devices connect; answered when all registrations have landed, or when a while has passed
//	stale <from> <to>    they have gone elsewhere, and it does not know yet: no frame arrives any more
//	release <from> <to>  it has noticed
//
// Each is answered with the same line.
type herd struct {
	*process.Process
	id    string
	proxy *redisProxy
	w     *base
	held  map[int]int // device -> its present socket among w.devices.sockets; the scenario's goroutine's own
}

const herdEnv = "ROLLCALL_HERD"

// animal is the IMEI of device i of the herds.
func animal(i int) string { return fmt.Sprintf("88%013d", i) }

// herd starts one behind a line of its own.
func (w *base) herd(id string) *herd {
	h := &herd{id: id, proxy: w.proxy(), w: w, held: make(map[int]int)}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), herdEnv+"="+id, "REDIS_ADDR="+h.proxy.Addr())
	cmd.Stderr = os.Stderr
	var err error
	h.Process, err = process.Start(cmd, process.Options{Talk: true})
	require.NoError(w.t, err)
	w.t.Cleanup(h.Process.Kill)
	return h
}

// order has the herd do something with a range of devices, and returns when it has.
func (h *herd) order(what string, from, to int) {
	h.w.t.Helper()
	line := fmt.Sprintf("%s %d %d", what, from, to)
	_, err := fmt.Fprintln(h.In, line)
	require.NoError(h.w.t, err)
	require.True(h.w.t, h.Out.Scan(), "herd %s is gone", h.id)
	require.Equal(h.w.t, line, h.Out.Text())
}

// claim lets devices connect to the herd, away from where they were.
func (h *herd) claim(from, to int, before *herd) {
	d := h.w.devices
	now := time.Now()
	if before != nil {
		before.leaves(from, to, now)
		before.order("stale", from, to)
	}
	d.mu.Lock()
	for i := from; i < to; i++ {
		h.held[i] = len(d.sockets)
		d.sockets = append(d.sockets, judge.Socket{IMEI: animal(i), Instance: h.id, Asked: now})
	}
	d.mu.Unlock()
	h.order("claim", from, to) // of a landed registration not told from one given up: no Ack
	d.mu.Lock()
	defer d.mu.Unlock()
	now = time.Now()
	for i := from; i < to; i++ {
		d.sockets[h.held[i]].Live = now
		h.w.claims[animal(i)] = h.id
	}
}

// leaves notes that devices have left the herd.
func (h *herd) leaves(from, to int, at time.Time) {
	d := h.w.devices
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, n := range h.held {
		if i < from || i >= to {
			continue
		}
		d.sockets[n].Ended = at
		delete(h.held, i)
		if h.w.claims[animal(i)] == h.id {
			delete(h.w.claims, animal(i))
		}
	}
}

// kill kills the herd. Its devices are nowhere.
func (h *herd) kill() {
	h.leaves(0, math.MaxInt, time.Now())
	h.w.mu.Lock()
	h.w.deaths = append(h.w.deaths, judge.Death{Instance: h.id, At: time.Now(), How: judge.Killed})
	h.w.mu.Unlock()
	h.Process.Kill()
}

// stop freezes the herd until the returned function is called.
func (h *herd) stop() (cont func()) {
	back := h.w.away(h.id)
	require.NoError(h.w.t, h.Process.Stop())
	return sync.OnceFunc(func() {
		require.NoError(h.w.t, h.Process.Cont())
		back()
	})
}

// beHerd is the herd's process. It ends with its standard input.
func beHerd(id string) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})).With("herd", id)
	opt := redis.Options{Addr: os.Getenv("REDIS_ADDR"), MaxRetries: -1, ContextTimeoutEnabled: true}
	control := opt
	control.DialTimeout, control.ReadTimeout, control.WriteTimeout, control.PoolTimeout = interval/4, interval/4, interval/4, interval/4
	r, err := registry.New(registry.Config{
		Client: redis.NewClient(&opt), Control: redis.NewClient(lease.Options(&control)), Instance: id,
		HeartbeatInterval: interval, HeartbeatTTL: ttl, Logger: log,
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()

	var mu sync.Mutex
	claims, live := map[int]*registry.Claim{}, map[int]*registry.Claim{}
	go func() { // devices that are really there send a frame a second
		for range time.Tick(time.Second) {
			mu.Lock()
			for _, c := range live {
				c.Arrived()
				c.Acknowledged()
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
				claims[i] = r.Register(context.Background(), animal(i))
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
		ctx, cancel := context.WithTimeout(context.Background(), 2*ttl)
		for i := from; i < to && what == "claim"; i++ {
			_ = claims[i].Wait(ctx) // an unanswered one is served all the same, and healed
		}
		cancel()
		fmt.Println(orders.Text())
	}
	return orders.Err()
}
