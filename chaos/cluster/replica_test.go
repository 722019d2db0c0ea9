package cluster

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

// asReplica has this test's own binary be a replica of that id: a registry and a janitor, without
// sockets. It takes orders on its standard input, a line each, and answers each with a line:
//
//	claim <imei>...  devices connect; they are not waited for
//	stale <imei>     it has gone elsewhere, and the replica does not know yet: no frames any more
//	release <imei>   the replica has noticed
//	stalls           answered by the times in which this process did not run since it was last
//	                 asked, as JSON
//	leave            stop as on SIGTERM: answered when all is released
const asReplica = "ROLLCALL_CLUSTER_REPLICA"

// What a replica is told besides, by its environment.
const (
	envNodes     = "ROLLCALL_NODES"     // of a Cluster, with commas
	envSentinels = "ROLLCALL_SENTINELS" // or of these
	envServer    = "ROLLCALL_SERVER"    // or of this one
	envInterval  = "ROLLCALL_INTERVAL"
	envTTL       = "ROLLCALL_TTL"
	envParts     = "ROLLCALL_PARTITIONS"
	envShare     = "ROLLCALL_SHARE" // of Redis' time for sweeps; 0: the default
)

// leaseTTL is of the replicas' leases.
const leaseTTL = 3 * time.Second

// base names the keys; each partition has a layout of its own.
var base = guard.Layout{Prefix: "{rollcall}:"}

// layouts are those of so many partitions.
func layouts(partitions int) (all []guard.Layout) {
	for k := range partitions {
		all = append(all, base.Partition(k, partitions))
	}
	return all
}

// outage is a time in which a process did not run, or could not reach Redis.
type outage struct {
	ID       string
	From, To time.Time
}

// clients are one for data and one for control.
func clients() (data, control redis.UniversalClient) {
	of := func(name string) []string { return strings.Split(os.Getenv(name), ",") }
	switch {
	case os.Getenv(envNodes) != "":
		o := lease.ClusterOptions(&redis.ClusterOptions{Addrs: of(envNodes)})
		load := *o
		load.PoolSize, load.ReadTimeout, load.WriteTimeout = 10, 10*time.Second, 10*time.Second
		return redis.NewClusterClient(&load), redis.NewClusterClient(o)
	case os.Getenv(envSentinels) != "":
		o := lease.FailoverOptions(&redis.FailoverOptions{
			MasterName: redistest.SentinelName, SentinelAddrs: of(envSentinels),
		})
		return redis.NewFailoverClient(o), redis.NewFailoverClient(o)
	}
	o := lease.Options(&redis.Options{Addr: os.Getenv(envServer)})
	return redis.NewClient(o), redis.NewClient(o)
}

func runReplica(id string) error {
	interval, err := time.ParseDuration(os.Getenv(envInterval))
	if err != nil {
		return err
	}
	ttl, err := time.ParseDuration(os.Getenv(envTTL))
	if err != nil {
		return err
	}
	redis.SetLogger(quiet{}) // it tells of each refused connection
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("instance", id)
	data, control := clients()
	partitions, err := strconv.Atoi(os.Getenv(envParts))
	if err != nil {
		return err
	}
	share, err := strconv.ParseFloat(os.Getenv(envShare), 64)
	if err != nil {
		return err
	}
	r, err := partition.NewRegistry(registry.Config{
		Client: data, Control: control, Instance: id, Layout: base,
		HeartbeatInterval: interval, HeartbeatTTL: ttl, Logger: log,
	}, partitions)
	if err != nil {
		return err
	}
	j, err := partition.NewJanitor(janitor.Config{
		Client: data, Control: control, Logger: log,
		Interval: 3 * time.Second, LeaseTTL: leaseTTL, RedisShare: share,
	}, r)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	ended := make(chan error, 1)
	go func() {
		g := pool.New().WithContext(ctx).WithCancelOnError()
		g.Go(r.Run)
		g.Go(j.Run)
		ended <- g.Wait()
	}()
	h := &holder{
		id: id, claims: map[string]*registry.Claim{}, live: map[string]*registry.Claim{},
		ran: time.Now(), stall: interval / 4,
	}
	go h.speak()
	go h.watch()
	orders := bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, longestOrder)
	for orders.Scan() {
		select {
		case err := <-ended:
			return fmt.Errorf("it has ended: %w", err)
		default:
		}
		what, imeis, _ := strings.Cut(orders.Text(), " ")
		if what == "leave" {
			leave()
			h.do(r, "release", slices.Collect(maps.Keys(h.claims)))
			err := <-ended
			fmt.Println(what)
			return err
		}
		fmt.Println(h.do(r, what, strings.Fields(imeis)))
	}
	return orders.Err()
}

// longestOrder is a line of as many devices as any row has.
const longestOrder = 4 << 20

type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// holder is what a replica knows of its devices.
type holder struct {
	id           string
	mu           sync.Mutex
	claims, live map[string]*registry.Claim
	ran          time.Time // when it was last seen that this process runs
	stall        time.Duration
	stalls       []outage
}

func (h *holder) do(r *partition.Registry, what string, imeis []string) (answer string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.runs()
	for _, imei := range imeis {
		switch what {
		case "claim":
			h.claims[imei] = r.Register(imei, registry.Socket{Close: func() error { return nil }})
			h.live[imei] = h.claims[imei]
		case "stale":
			delete(h.live, imei)
		case "release":
			if c := h.claims[imei]; c != nil {
				c.Release()
			}
			delete(h.claims, imei)
			delete(h.live, imei)
		}
	}
	if what != "stalls" {
		return what
	}
	text, err := json.Marshal(h.stalls)
	if err != nil {
		panic(err) // cannot be: times and a name
	}
	h.stalls = nil
	return string(text)
}

// speak has each device that is really there send a frame a second.
func (h *holder) speak() {
	for range time.Tick(time.Second) {
		h.mu.Lock()
		for _, c := range h.live {
			c.Touch()
		}
		h.mu.Unlock()
	}
}

// watch notes when this process does not run for a time: it cannot beat then.
func (h *holder) watch() {
	for range time.Tick(20 * time.Millisecond) {
		h.mu.Lock()
		h.runs()
		h.mu.Unlock()
	}
}

// runs notes that this process runs, and since when it did not. mu is held.
func (h *holder) runs() {
	now := time.Now()
	if now.Sub(h.ran) > h.stall {
		h.stalls = append(h.stalls, outage{ID: h.id, From: h.ran, To: now})
	}
	h.ran = now
}
