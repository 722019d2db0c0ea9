package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sourcegraph/conc/pool"
	"github.com/stretchr/testify/require"

	"github.com/rollcall-redis/rollcall/internal/guard"
	"github.com/rollcall-redis/rollcall/internal/partition"
	"github.com/rollcall-redis/rollcall/internal/testservers/redistest"
	"github.com/rollcall-redis/rollcall/internal/wait"
	"github.com/rollcall-redis/rollcall/janitor"
	"github.com/rollcall-redis/rollcall/lease"
	"github.com/rollcall-redis/rollcall/registry"
)

const (
	page  = 1000 // COUNT of a scan, and
	batch = 500  // the most entries of one write, on the floor as with us
	// bystanders are the owners that live while another dies: enough for the deaths of a whole
	// scenario not to look like our own fault.
	bystanders = 100
)

// rig is one scenario's server, and what is written on it.
type rig struct {
	*testing.T
	size
	*paper
	srv  *redistest.Server
	rdb  *redis.Client // what fills, what looks, and what floors and peers go through
	keys registry.Layout
	// partitions that keys are divided into; 0: one.
	partitions int
	from       time.Time // when what a neighbour is to notice began, if not with the measuring
	idle       float64   // share of a core that the server takes while nobody asks it for anything

	listening bool // a neighbour is there while something is measured
	elsewhere bool // and has priority, and the server too
}

// exact makes a server keep what a call's longest time was. A thousand replicas in 16 partitions
// have more connections than a server accepts by default.
var exact = []string{"--latency-tracking-info-percentiles", "50 99 100", "--maxclients", "40000"}

func newRig(t *testing.T, s size, p *paper) *rig {
	r := onServer(t, s, p, redistest.Start(t, exact...))
	p.Server = r.server() + ", " + r.info("server")["os"]
	return r
}

func onServer(t *testing.T, s size, p *paper, srv *redistest.Server) *rig {
	o := srv.Options()
	o.ReadTimeout = time.Minute // for what takes long: an HGETALL of millions
	r := &rig{size: s, paper: p, T: t, srv: srv, rdb: redis.NewClient(o)}
	t.Cleanup(func() { _ = r.rdb.Close() })
	if *sizeFlag != smoke {
		r.elsewhere = prefer(int(number(r.info("server")["process_id"])), elsewhere) == nil
	}
	r.settleIdle()
	return r
}

// server is the make and version of the rig's.
func (r *rig) server() string {
	info := r.info("server")
	// whose redis_version is the one that it is compatible with
	if v := info["valkey_version"]; v != "" {
		return "Valkey " + v
	}
	return "Redis " + info["redis_version"]
}

// rest waits for d. At the smoke size nothing is learnt from waiting, so it is a moment.
func (r *rig) rest(d time.Duration) {
	if *sizeFlag == smoke {
		d = min(d, 50*time.Millisecond)
	}
	wait.For(r.Context(), d)
}

// idles are what servers cost while idle, by their make and number.
var idles = map[string]float64{}

// settleIdle measures the server's own cost while idle, once, except at the smoke size.
func (r *rig) settleIdle() {
	if *sizeFlag == smoke {
		return
	}
	like := r.server()
	if r.idle = idles[like]; r.idle > 0 {
		return
	}
	var shares []float64
	for range 5 {
		before, begun := r.usage(), time.Now()
		wait.For(r.Context(), time.Second)
		shares = append(shares, float64(r.usage().cpu-before.cpu)/float64(time.Since(begun)))
	}
	r.idle = median(shares)
	idles[like] = r.idle
}

// clear forgets everything, at once.
func (r *rig) clear() {
	require.NoError(r, r.rdb.FlushAllAsync(r.Context()).Err()) // quick; what it frees is waited for:
	r.until(func() bool { return r.info("memory")["lazyfree_pending_objects"] == "0" })
}

// imei is the i-th of the devices.
func imei(i int) string { return fmt.Sprintf("35%013d", i) }

// owner is the i-th of some owners, named as pods are.
func owner(kind string, i int) string { return fmt.Sprintf("ingest-%s-7d9f8b6c5-%05d", kind, i) }

func owners(kind string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = owner(kind, i)
	}
	return ids
}

// fill writes n entries from the first device on, with their owners' indexes if they are kept,
// chunk by chunk in turn, as registrations come.
func (r *rig) fill(first, n int, indexed bool, ids ...string) {
	ctx, pipe := r.Context(), r.rdb.Pipeline()
	flush := func() {
		_, err := pipe.Exec(ctx)
		require.NoError(r, err)
	}
	each := min(batch, max(1, n/len(ids)))
	for i, turn := 0, 0; i < n; turn++ {
		id := ids[turn%len(ids)]
		m := min(each, n-i)
		pairs, members := make([]string, 0, 2*m), make([]string, 0, m)
		for range m {
			members = append(members, imei(first+i))
			pairs = append(pairs, imei(first+i), id)
			i++
		}
		pipe.HSet(ctx, r.keys.Registry(), pairs)
		if indexed {
			pipe.SAdd(ctx, r.keys.Devices(id), members)
		}
		if pipe.Len() >= 20 {
			flush()
		}
	}
	flush()
}

// live gives owners a heartbeat that does not end, a record of a beat that none need follow, and a
// place on the roster. Beats that are overdue would make sweeps go slower.
func (r *rig) live(ids ...string) {
	pipe := r.rdb.Pipeline()
	record := fmt.Sprintf("%d/86400000/86400000/1/0/h", time.Now().UnixMilli())
	for _, id := range ids {
		pipe.Set(r.Context(), r.keys.Heartbeat(id), "0/0", 0)
		pipe.HSet(r.Context(), r.keys.Beats(), id, record)
		pipe.SAdd(r.Context(), r.keys.Roster(), id)
	}
	_, err := pipe.Exec(r.Context())
	require.NoError(r, err)
}

// longDead is the record of an owner about which nothing is in doubt.
const longDead = "1/90000/38000/1/0/h"

// die takes owners' heartbeats away, of all at the same instant, and sees to it that they are on
// the roster.
func (r *rig) die(ids ...string) {
	pipe := r.rdb.TxPipeline()
	for _, id := range ids {
		pipe.Del(r.Context(), r.keys.Heartbeat(id))
		pipe.HSet(r.Context(), r.keys.Beats(), id, longDead)
		pipe.SAdd(r.Context(), r.keys.Roster(), id)
	}
	_, err := pipe.Exec(r.Context())
	require.NoError(r, err)
}

// entries counts the registry.
func (r *rig) entries() int {
	n, err := r.rdb.HLen(r.Context(), r.keys.Registry()).Result()
	require.NoError(r, err)
	return int(n)
}

// warm makes the witness one that has listened for an hour.
func (r *rig) warm() { r.warmFor(registry.DefaultHeartbeatInterval) }

// warmFor is warm for a fleet that beats at another interval.
func (r *rig) warmFor(interval time.Duration) {
	t := guard.Timing{Interval: interval, TTL: 3 * interval}
	w, err := guard.New(r.rdb, r.rdb, r.keys, t, "nobody").Tick(r.Context())
	require.NoError(r, err)
	require.NoError(r, r.rdb.HSet(r.Context(), r.keys.Witness(), "since", w.Now.Add(-time.Hour).UnixMilli()).Err())
}

// replica is one of ours, as an embedder runs it.
type replica struct {
	r    *rig
	reg  *partition.Registry // of one partition
	jan  *partition.Janitor
	stop func()
}

// madeUp is for replicas that make their own ids, as by default: one whose id is fixed looks
// through the whole registry at start for what a former life left.
const madeUp = ""

// replica runs one with a janitor at a full share of Redis whose full scan comes once, at the
// beginning, and then on demand. change, if given, adapts that.
func (r *rig) replica(id string, change func(*registry.Config, *janitor.Config)) *replica {
	return r.start(id, change, true)
}

func (r *rig) start(id string, change func(*registry.Config, *janitor.Config), waited bool) *replica {
	client, control := redis.NewClient(r.srv.Options()), redis.NewClient(lease.Options(r.srv.Options()))
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	rc := registry.Config{Client: client, Control: control, Instance: id, Layout: r.keys, Drain: time.Millisecond, Logger: quiet}
	jc := janitor.Config{Client: client, Control: control, Interval: time.Hour, RedisShare: 1, Logger: quiet}
	if change != nil {
		change(&rc, &jc)
	}
	reg, err := partition.NewRegistry(rc, 1)
	require.NoError(r, err)
	jan, err := partition.NewJanitor(jc, reg)
	require.NoError(r, err)

	ctx, cancel := context.WithCancel(context.Background())
	p := pool.New().WithContext(ctx)
	p.Go(reg.Run)
	if waited { // so that it does not lead before its own heartbeat is there
		<-reg.Started()
	}
	p.Go(jan.Run)
	stop := sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(p.Wait(), client.Close(), control.Close()); err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(stop)
	return &replica{r: r, reg: reg, jan: jan, stop: stop}
}

// stopAll stops replicas at the same time.
func stopAll(fleet []*replica) {
	var wg sync.WaitGroup
	for _, p := range fleet {
		wg.Go(p.stop)
	}
	wg.Wait()
}

// leads waits until both sweeps have had a pass.
func (p *replica) leads() *replica {
	p.r.until(func() bool {
		return p.last("owners").Outcome == janitor.Done && p.last("registry").Outcome == janitor.Done
	})
	return p
}

// last is the last report of a sweep.
func (p *replica) last(sweep string) janitor.Report {
	for _, report := range p.jan.Status().Sweeps {
		if report.Sweep == sweep {
			return report
		}
	}
	return janitor.Report{}
}

// pass asks for a pass of every sweep and returns the full scan's report.
func (p *replica) pass() janitor.Report {
	reports, err := p.jan.Sweep(p.r.Context(), janitor.Request{})
	require.NoError(p.r, err)
	for _, report := range reports {
		require.Equal(p.r, janitor.Done, report.Outcome, "%+v", report)
		if report.Sweep == "registry" {
			return report
		}
	}
	require.Fail(p.r, "no full scan")
	return janitor.Report{}
}

// until waits for what comes about by itself.
func (r *rig) until(cond func() bool) {
	r.Helper()
	deadline := time.Now().Add(5 * time.Minute)
	for !cond() {
		if time.Now().After(deadline) {
			require.FailNow(r, "never came about")
		}
		wait.For(r.Context(), time.Millisecond)
	}
}
