// Command fleet starts a small fleet on this machine for a demonstration: a Redis, three replicas
// of ingest with simulated devices, and a Prometheus with the alerts of ../prometheus. It listens
// on this machine only. "make fleet" runs it:
//
//	fleet INGEST REDIS_SERVER PROMETHEUS_FOLDER ALERTS_FILE
//
// An interrupt ends everything, with status 0.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc"

	"github.com/rollcall-redis/rollcall/deploy/internal/promserver"
	"github.com/rollcall-redis/rollcall/deploy/internal/rules"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	replicas = 3
	devices  = 200
	patience = time.Minute // usually a second
	poll     = 20 * time.Millisecond
)

// pace can be followed by an onlooker.
var pace = []string{
	"HEARTBEAT_INTERVAL=2s", "HEARTBEAT_TTL=6s", "JANITOR_INTERVAL=10s", "JANITOR_LEASE_TTL=3s",
	"SHUTDOWN_GRACE=3s",
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr,
			"usage: fleet INGEST REDIS_SERVER PROMETHEUS_FOLDER ALERTS_FILE; make fleet has them")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	f := &fleet{
		out: os.Stdout, ingest: os.Args[1], redis: os.Args[2], prometheus: os.Args[3], alerts: os.Args[4],
	}
	if err := f.run(ctx); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type fleet struct {
	out                               io.Writer
	ingest, redis, prometheus, alerts string

	dir  string
	url  string // of Redis
	all  []*replica
	work conc.WaitGroup
}

type replica struct {
	*process.Process
	id, http, devices string
}

// run returns when ctx has ended and nothing runs any more, or something did not start.
func (f *fleet) run(ctx context.Context) (err error) {
	// Short: below it is a socket, whose name has at most about 100 characters.
	if f.dir, err = os.MkdirTemp("", "rollcall-"); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(f.dir)) }()
	server, err := f.startRedis(ctx)
	if err != nil {
		return err
	}
	defer server.Kill()
	token := rand.Text()
	defer f.stop()
	for i := range replicas {
		if err := f.launch(ctx, fmt.Sprint("ingest-", i+1), "ADMIN_TOKEN="+token); err != nil {
			return err
		}
	}
	prom, err := f.watch(ctx)
	if err != nil {
		return err
	}
	defer prom.Kill()
	trackers, err := f.trackers()
	if err != nil {
		return err
	}
	f.describe(prom.URL, token)
	f.work.Go(func() { trackers.Run(ctx) }) // the page shows what becomes of them
	f.work.Go(func() { f.tellEnds(ctx) })
	<-ctx.Done()
	f.work.Wait()
	return nil
}

// startRedis listens only on a socket in the fleet's folder.
func (f *fleet) startRedis(ctx context.Context) (*process.Process, error) {
	socket := filepath.Join(f.dir, "redis.sock")
	f.url = "unix://" + socket
	cmd := exec.Command(f.redis, "--port", "0", "--unixsocket", socket,
		"--dir", f.dir, "--save", "", "--appendonly", "no")
	p, err := process.Start(cmd, process.Options{Log: filepath.Join(f.dir, "redis.log"), OwnGroup: true})
	if err != nil {
		return nil, fmt.Errorf("fleet: Redis: %w", err)
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, MaxRetries: -1})
	defer client.Close()
	if err := until(ctx, p, "Redis", func() bool { return client.Ping(ctx).Err() == nil }); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (f *fleet) launch(ctx context.Context, id string, settings ...string) error {
	cmd := exec.Command(f.ingest)
	cmd.Env = append(append([]string{
		"REDIS_URL=" + f.url, "INSTANCE_ID=" + id, "LOG_FORMAT=json",
		"HTTP_ADDR=127.0.0.1:0", "INGEST_ADDR=127.0.0.1:0",
	}, pace...), settings...)
	child, err := process.Start(cmd, process.Options{Log: filepath.Join(f.dir, id+".log"), OwnGroup: true})
	if err != nil {
		return fmt.Errorf("fleet: %s: %w", id, err)
	}
	r := &replica{Process: child, id: id}
	f.all = append(f.all, r)
	return until(ctx, child, id, func() bool {
		r.http, r.devices = r.Said("serving HTTP", "addr"), r.Said("listening for devices", "addr")
		return r.http != "" && r.devices != ""
	})
}

func until(ctx context.Context, p *process.Process, name string, holds func() bool) error {
	for end := time.Now().Add(patience); !holds(); {
		switch {
		case !p.Runs():
			return fmt.Errorf("fleet: %s has ended: %s", name, p.Log())
		case time.Now().After(end):
			return fmt.Errorf("fleet: waited in vain for %s: %s", name, p.Log())
		case !wait.For(ctx, poll):
			return context.Cause(ctx)
		}
	}
	return nil
}

func (f *fleet) watch(ctx context.Context) (*promserver.Server, error) {
	all, err := rules.Read(f.alerts)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(f.dir, "alerts.yml")
	if err := all.Of("ingest").Write(file); err != nil {
		return nil, err
	}
	prom, err := promserver.Start(ctx, promserver.Config{
		Bin: f.prometheus, Dir: f.dir, Every: 2 * time.Second, Rules: []string{file},
	})
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, r := range f.all {
		addrs = append(addrs, r.http)
	}
	if err := prom.Scrape(map[string][]string{"ingest": addrs}); err != nil {
		prom.Kill()
		return nil, err
	}
	return prom, nil
}

func (f *fleet) trackers() (*sim.Simulation, error) {
	c := sim.Config{Devices: devices, Interval: 5 * time.Second, LadderUnit: time.Second}
	for _, r := range f.all {
		c.Targets = append(c.Targets, r.devices)
	}
	return sim.Simulate(c)
}

func (f *fleet) describe(prometheus, token string) {
	for _, r := range f.all {
		fmt.Fprintf(f.out, "page        http://%s/   %s, pid %d\n", r.http, r.id, r.PID())
	}
	fmt.Fprintf(f.out, `Prometheus  %s/alerts
Redis       %s
token       %s   for what changes something
devices     %d, simulated
logs        %s

kill -9 %-8d  one replica dies: within 10 s its devices are elsewhere, and its entries gone
Ctrl-C            ends everything
`, prometheus, f.url, token, devices, f.dir, f.all[0].PID())
}

func (f *fleet) tellEnds(ctx context.Context) {
	for _, r := range f.all {
		f.work.Go(func() {
			select {
			case <-ctx.Done():
			case <-r.Done():
				fmt.Fprintf(f.out, "%s has ended; its log: %s\n", r.id, lastLine(r.Log()))
			}
		})
	}
}

func lastLine(text string) string {
	text = strings.TrimRight(text, "\n")
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// stop is graceful if replicas manage in time.
func (f *fleet) stop() {
	for _, r := range f.all {
		_ = r.Signal(syscall.SIGTERM) // or it has ended
	}
	late := time.After(patience)
	for _, r := range f.all {
		select {
		case <-r.Done():
		case <-late:
		}
		r.Kill()
	}
}
