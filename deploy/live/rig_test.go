package live

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/availability/postgres/pgtest"
	"github.com/rollcall-redis/rollcall/deploy/internal/promserver"
	"github.com/rollcall-redis/rollcall/internal/process"
	"github.com/rollcall-redis/rollcall/internal/teltonika/sim"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
)

const (
	// patience bounds what a test waits for an event; nothing ever takes so long.
	patience = 5 * time.Minute
	poll     = 50 * time.Millisecond
	every    = 500 * time.Millisecond // between two scrapes
	secret   = "0123456789abcdef0123456789abcdef"
)

func TestMain(m *testing.M) {
	logging.Disable() // what go-redis would print while a server is away
	pgtest.Main(m)
}

// programs is the folder with the programs, built once.
var programs = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("../../.cache/live")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-C", "../..", "-o", dir+"/",
		"./cmd/ingest", "./cmd/cleanup", "./cmd/availability").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

// prometheusBin is the folder with Prometheus.
var prometheusBin = sync.OnceValues(func() (string, error) {
	find := exec.Command("../../scripts/prometheus")
	find.Stderr = os.Stderr
	out, err := find.Output()
	return strings.TrimSpace(string(out)), err
})

// rig is a Prometheus, and what it scrapes: replicas of the programs on a Redis of their own. The
// test's own user of Redis keeps all rights, whatever is taken from the replicas'.
type rig struct {
	testing.TB
	redis *redistest.Server
	rdb   *redis.Client
	prom  *promserver.Server
	jobs  map[string][]*replica
}

type replica struct {
	*process.Process
	id, http, devices string
}

// newRig starts a Redis.
func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{TB: t, redis: redistest.Start(t), jobs: map[string][]*replica{}}
	require.NoError(t, r.redis.Client().Do(t.Context(),
		"ACL", "SETUSER", "tester", "on", "nopass", "~*", "&*", "+@all").Err())
	o := r.redis.Options()
	o.Username, o.Password = "tester", "any"
	r.rdb = redis.NewClient(o)
	t.Cleanup(func() { _ = r.rdb.Close() })
	return r
}

// watch starts a Prometheus with these files of rules. It scrapes all replicas that there are and
// will be.
func (r *rig) watch(rules ...string) {
	r.Helper()
	bin, err := prometheusBin()
	require.NoError(r, err)
	c := promserver.Config{Bin: bin, Dir: r.TempDir(), Every: every, Rules: rules}
	r.prom, err = promserver.Start(r.Context(), c)
	require.NoError(r, err)
	r.Cleanup(r.prom.Kill)
	r.scrape()
}

// redisURL is Redis as replicas see it.
func (r *rig) redisURL() string { return "redis://" + r.redis.Addr() }

// start starts one more replica of a program, which is scraped as a job of the program's name.
func (r *rig) start(program string, settings ...string) *replica {
	r.Helper()
	dir, err := programs()
	require.NoError(r, err)
	id := program + "-" + strconv.Itoa(len(r.jobs[program])+1)
	cmd := exec.Command(filepath.Join(dir, program))
	cmd.Env = append(os.Environ(),
		"HTTP_ADDR=127.0.0.1:0", "LOG_FORMAT=json", "REDIS_URL="+r.redisURL(), "INSTANCE_ID="+id)
	if program == "ingest" {
		cmd.Env = append(cmd.Env, "INGEST_ADDR=127.0.0.1:0")
	}
	cmd.Env = append(cmd.Env, settings...)
	child, err := process.Start(cmd,
		process.Options{Log: filepath.Join(r.TempDir(), id+".log"), OwnGroup: true})
	require.NoError(r, err)
	p := &replica{Process: child, id: id}
	r.Cleanup(func() {
		p.Kill()
		if r.Failed() {
			text := p.Log()
			r.Logf("%s, end of its log:\n%s", id, text[max(0, len(text)-4000):])
		}
	})
	r.await(id+" serves", func() bool {
		require.True(r, p.Runs(), "%s has ended: %s", id, p.Log())
		p.http, p.devices = p.Said("serving HTTP", "addr"), p.Said("listening for devices", "addr")
		return p.http != "" && (program != "ingest" || p.devices != "")
	})
	r.jobs[program] = append(r.jobs[program], p)
	r.scrape()
	return p
}

// simulate plays something against the fleet, until the test ends.
func (r *rig) simulate(program string, args ...string) *replica {
	r.Helper()
	dir, err := programs()
	require.NoError(r, err)
	child, err := process.Start(exec.Command(filepath.Join(dir, program), args...),
		process.Options{Log: filepath.Join(r.TempDir(), "simulate.log"), OwnGroup: true})
	require.NoError(r, err)
	r.Cleanup(child.Kill)
	return &replica{Process: child}
}

// several starts so many replicas.
func (r *rig) several(n int, program string, settings ...string) {
	r.Helper()
	for range n {
		r.start(program, settings...)
	}
}

func (r *rig) scrape() {
	r.Helper()
	if r.prom == nil {
		return
	}
	targets := make(map[string][]string)
	for job, replicas := range r.jobs {
		for _, p := range replicas {
			targets[job] = append(targets[job], p.http)
		}
	}
	require.NoError(r, r.prom.Scrape(targets))
}

// leader is the replica of ingest that leads; nil: none does.
func (r *rig) leader() *replica {
	holder, _, _ := strings.Cut(r.rdb.Get(r.Context(), "janitor:leader").Val(), "/")
	i := slices.IndexFunc(r.jobs["ingest"], func(p *replica) bool { return p.id == holder })
	if i < 0 {
		return nil
	}
	return r.jobs["ingest"][i]
}

// devices are simulated trackers that connect to the replicas of ingest, until the test ends.
func (r *rig) devices(c sim.Config) {
	r.Helper()
	for _, p := range r.jobs["ingest"] {
		c.Targets = append(c.Targets, p.devices)
	}
	fleet, err := sim.Simulate(c)
	require.NoError(r, err)
	r.background(fleet.Run)
}

// background runs something until the test ends.
func (r *rig) background(run func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	r.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (r *rig) await(what string, holds func() bool) {
	r.Helper()
	for until := time.Now().Add(patience); !holds(); {
		require.True(r, time.Now().Before(until), "waited in vain: %s", what)
		require.True(r, wait.For(r.Context(), poll))
	}
}

// query asks Prometheus for the value now.
func (r *rig) query(expr string) (model.Vector, error) {
	value, _, _, err := r.prom.API.Query(r.Context(), expr, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	vector, ok := value.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("%s is a %s", expr, value.Type())
	}
	return vector, nil
}

// is tells whether an expression has a value, and the value of each of its series is so much.
func (r *rig) is(want float64, expr string) bool {
	vector, err := r.query(expr)
	require.NoError(r, err)
	other := func(s *model.Sample) bool { return float64(s.Value) != want }
	return len(vector) > 0 && !slices.ContainsFunc(vector, other)
}

// alerts are the names of those that fire, or are about to.
func (r *rig) alerts(firing bool) []string {
	r.Helper()
	all, err := r.prom.API.Alerts(r.Context())
	require.NoError(r, err)
	names := make(map[string]bool)
	for _, a := range all.Alerts {
		if a.State == v1.AlertStateFiring || !firing {
			names[string(a.Labels["alertname"])] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
